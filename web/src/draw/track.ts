// One strip of a shared time axis, on uPlot: it brings axes, cursor, the selection of a range and the sync between strips;
// what stands in the plot is painted by the strip's own `paint`. Knows buckets of time, nothing of state.
import uPlot from "uplot";
import type { TimelinePoint } from "../api/types";
import { clock, exact } from "../lib/format";
import { FONT, hatch, type Ink } from "./palette";

/** A bucket of time; `engine_up` false where no engine wrote anything. */
export interface Bucket {
  wall_ns: number;
  engine_up?: boolean;
}

/** Buckets of equal length, one after the other. */
export interface Series<P extends Bucket> {
  since_wall_ns: number;
  until_wall_ns: number;
  bucket_ns: number;
  points: readonly P[];
}

export interface TrackData<P extends Bucket = TimelinePoint> {
  timeline: Series<P>;
  ink: Ink;
}

/** A bucket's place on the canvas, in device pixels. */
export interface Slot<P extends Bucket = TimelinePoint> {
  left: number;
  width: number;
  point: P;
}

export interface Painter<P extends Bucket = TimelinePoint> {
  ctx: CanvasRenderingContext2D;
  ratio: number;
  ink: Ink;
  slots: readonly Slot<P>[];
  /** The plot's box in device pixels. */
  box: { left: number; top: number; width: number; height: number };
  /** Where a y value stands. */
  y: (value: number) => number;
  /** Where a wall time (ns) stands. */
  x: (wallNs: number) => number;
}

export interface TrackOptions<P extends Bucket = TimelinePoint> {
  height: number;
  /** Room at the left that every strip of a screen shares, so that their times stand under each other. */
  gutter: number;
  /** Room at the right, as shared: half of the last time's label, and whatever is written beside the plot. */
  margin: number;
  hasTimeAxis: boolean;
  /** Labels of the y axis; null for a strip without one. */
  yLabel: ((value: number) => string) | null;
  padTop: number;
  yMax: (points: readonly P[]) => number;
  paint: (painter: Painter<P>, data: TrackData<P>) => void;
  onCursor: (index: number | null) => void;
  onSelect: (sinceMs: number, untilMs: number) => void;
}

export class Track<P extends Bucket = TimelinePoint> {
  readonly #plot: uPlot;
  readonly #options: TrackOptions<P>;
  #data: TrackData<P>;
  #frame: number | null = null;
  #width: number;

  constructor(root: HTMLElement, width: number, data: TrackData<P>, options: TrackOptions<P>) {
    this.#data = data;
    this.#options = options;
    this.#width = width;
    this.#plot = new uPlot(this.#uplotOptions(), this.#columns(), root);
  }

  /** Takes new data; drawn once, with the next frame. */
  update(data: TrackData<P>, width: number): void {
    this.#data = data;
    this.#width = width;
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      const size = { width: this.#width, height: this.#options.height };
      if (this.#plot.width !== size.width) this.#plot.setSize(size);
      this.#plot.setData(this.#columns(), true);
    });
  }

  /** Puts the shared cursor on a bucket, or takes it away. */
  point(index: number | null): void {
    const at = index === null ? undefined : this.#data.timeline.points[index];
    const half = this.#data.timeline.bucket_ns / 2e9;
    const left = at ? this.#plot.valToPos(at.wall_ns / 1e9 + half, "x") : -10;
    this.#plot.setCursor({ left, top: at ? 1 : -10 });
  }

  destroy(): void {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#plot.destroy();
  }

  #columns(): uPlot.AlignedData {
    const { points, bucket_ns } = this.#data.timeline;
    // uPlot's points stand at the middles of the buckets: that is where its cursor snaps to.
    const xs = points.map((point) => (point.wall_ns + bucket_ns / 2) / 1e9);
    return [xs, points.map(() => 0)];
  }

  #uplotOptions(): uPlot.Options {
    const o = this.#options;
    return {
      width: this.#width,
      height: o.height,
      padding: [o.padTop, o.margin, o.hasTimeAxis ? null : 0, 0],
      legend: { show: false },
      scales: {
        x: {
          time: true,
          range: () => [this.#data.timeline.since_wall_ns / 1e9, this.#data.timeline.until_wall_ns / 1e9],
        },
        y: { range: () => [0, Math.max(o.yMax(this.#data.timeline.points), 1e-9)] },
      },
      axes: [
        {
          show: o.hasTimeAxis,
          size: 24,
          gap: 4,
          font: FONT,
          space: 76,
          stroke: () => this.#data.ink.muted,
          grid: { stroke: () => this.#data.ink.grid, width: 1 },
          ticks: { show: false },
          values: (_, splits) => timeLabels(splits),
        },
        {
          size: o.gutter,
          gap: 6,
          font: FONT,
          stroke: () => this.#data.ink.muted,
          grid: { show: o.yLabel !== null, stroke: () => this.#data.ink.grid, width: 1 },
          ticks: { show: false },
          splits: (_, __, min, max) => (o.yLabel ? [min, (min + max) / 2, max] : []),
          values: (_, splits) => splits.map((value) => (o.yLabel ? o.yLabel(value) : "")),
        },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      cursor: {
        sync: { key: "time", setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { show: false },
        y: false,
      },
      hooks: {
        drawClear: [(u) => this.#paintGround(u)],
        draw: [(u) => o.paint(this.#painter(u), this.#data)],
        setCursor: [(u) => o.onCursor(u.cursor.idx ?? null)],
        setSelect: [
          (u) => {
            // The selection is synced too; only the strip under the pointer acts on it.
            if (u.select.width < 4 || !u.over.matches(":hover")) return;
            const sinceMs = u.posToVal(u.select.left, "x") * 1e3;
            const untilMs = u.posToVal(u.select.left + u.select.width, "x") * 1e3;
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            if (untilMs - sinceMs >= 1000) o.onSelect(sinceMs, untilMs);
          },
        ],
      },
    };
  }

  #painter(u: uPlot): Painter<P> {
    const { points, bucket_ns } = this.#data.timeline;
    const x = (wallNs: number) => u.valToPos(wallNs / 1e9, "x", true);
    const slots = points.map((point) => {
      const left = Math.round(x(point.wall_ns));
      return { left, width: Math.max(1, Math.round(x(point.wall_ns + bucket_ns)) - left), point };
    });
    return {
      ctx: u.ctx,
      ratio: uPlot.pxRatio,
      ink: this.#data.ink,
      slots,
      box: u.bbox,
      y: (value) => u.valToPos(value, "y", true),
      x,
    };
  }

  /** Where no engine wrote anything: a grey hatched band, which is not the same as nothing happening. */
  #paintGround(u: uPlot): void {
    const { ctx, slots, box, ink, ratio } = this.#painter(u);
    ctx.save();
    let start = 0;
    while (start < slots.length) {
      if (slots[start]?.point.engine_up !== false) {
        start += 1;
        continue;
      }
      let end = start;
      while (end + 1 < slots.length && slots[end + 1]?.point.engine_up === false) end += 1;
      const first = slots[start];
      const last = slots[end];
      if (first && last) {
        const width = last.left + last.width - first.left;
        ctx.fillStyle = ink.gap;
        ctx.fillRect(first.left, box.top, width, box.height);
        ctx.fillStyle = hatch(ctx, ink.grid, ratio, 8);
        ctx.fillRect(first.left, box.top, width, box.height);
      }
      start = end + 1;
    }
    ctx.restore();
  }
}

/** Time of day; with the date where a range covers more than a day. */
function timeLabels(splits: number[]): string[] {
  const first = splits[0] ?? 0;
  const step = (splits[1] ?? first) - first;
  return splits.map((second) => {
    const ns = second * 1e9;
    if (step >= 86_400) return exact(ns).slice(5, 10);
    if (step >= 60) return clock(ns).slice(0, 5);
    return clock(ns);
  });
}
