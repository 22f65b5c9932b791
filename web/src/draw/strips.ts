// What stands in each strip: the stacked sources of prompt tokens, bars of blocks, the fill of the CPU tier.
import type { PolicyMarker, Timeline, TimelinePoint } from "../api/types";
import { COLORS, FONT, hatch } from "./palette";
import type { Bucket, Painter } from "./track";

export type Unit = "share" | "tokens";

/** The sources of one bucket's prompt tokens, from the bottom of the stack to its top. */
export function stackOf(point: TimelinePoint): { gpu: number; cpu: number; restored: number; computed: number } | null {
  if (point.gpu_hit_tokens === null || point.cpu_hit_tokens === null || point.computed_tokens === null) return null;
  const restored = Math.min(point.restored_hit_tokens ?? 0, point.cpu_hit_tokens);
  return { gpu: point.gpu_hit_tokens, cpu: point.cpu_hit_tokens - restored, restored, computed: point.computed_tokens };
}

export function tokensOf(point: TimelinePoint): number | null {
  const stack = stackOf(point);
  return stack && stack.gpu + stack.cpu + stack.restored + stack.computed;
}

export function paintSources(p: Painter, timeline: Timeline, unit: Unit): void {
  const { ctx, ratio } = p;
  const gap = (p.slots[0]?.width ?? 0) >= 6 * ratio ? ratio : 0;
  clip(p, () => {
    for (const { left, width, point } of p.slots) {
      const stack = stackOf(point);
      const total = tokensOf(point);
      if (!stack || !total) continue;
      const scale = unit === "share" ? 1 / total : 1;
      let base = 0;
      const bar = (value: number, fill: string | CanvasPattern, over?: string | CanvasPattern) => {
        if (value <= 0) return;
        const bottom = Math.round(p.y(base * scale));
        base += value;
        const top = Math.round(p.y(base * scale));
        for (const style of over ? [fill, over] : [fill]) {
          ctx.fillStyle = style;
          ctx.fillRect(left, top, Math.max(1, width - gap), Math.max(1, bottom - top));
        }
      };
      bar(stack.gpu, COLORS.gpu);
      bar(stack.cpu, COLORS.cpu);
      bar(stack.restored, COLORS.cpu, hatch(ctx, COLORS.restored, ratio, 5));
      ctx.globalAlpha = 0.4;
      bar(stack.computed, COLORS.computed);
      ctx.globalAlpha = 1;
    }
  });
  paintPolicies(p, timeline);
  paintDown(p);
}

const MAX_LINES = 20;
const LINE_GAP = 4;

/**
 * Where a line stands for a change of policy: nowhere in a view of many changes, whose lines would hide what they mark,
 * and never so near to the line before that the two look like one. The ribbon shows every change all the same.
 */
export function changeLines(places: readonly number[], gap: number): number[] {
  if (places.length > MAX_LINES) return [];
  const kept: number[] = [];
  for (const place of [...places].sort((a, b) => a - b)) {
    if (kept.length === 0 || place - (kept.at(-1) ?? 0) >= gap) kept.push(place);
  }
  return kept;
}

/** What of a timeline says which policy held when. */
export type Policies = Pick<Timeline, "since_wall_ns" | "until_wall_ns" | "policy_markers" | "policy_at_start">;

/** The policy over time: a ribbon above the plot, and a line through it at a change, where lines have room. */
export function paintPolicies<P extends Bucket>(p: Painter<P>, timeline: Policies): void {
  const { ctx, ratio, box, ink } = p;
  const height = 15 * ratio;
  const top = box.top - height - 3 * ratio;
  const changes = policySpans(timeline);
  const starts = changes
    .filter(({ fromNs, version }) => version !== null && fromNs > timeline.since_wall_ns)
    .map(({ fromNs }) => Math.max(box.left, Math.round(p.x(fromNs))))
    .filter((left) => left < box.left + box.width);
  const lines = new Set(changeLines(starts, LINE_GAP * ratio));
  ctx.save();
  ctx.font = scaled(FONT, ratio);
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const { fromNs, untilNs, label, version } of changes) {
    const left = Math.max(box.left, Math.round(p.x(fromNs)));
    const right = Math.min(box.left + box.width, Math.round(p.x(untilNs)));
    if (right <= left) continue;
    const isOn = label !== "off";
    ctx.fillStyle = isOn ? COLORS.restored : ink.line;
    ctx.fillRect(left, top + height - 3 * ratio, Math.max(1, right - left - ratio), 3 * ratio);
    const text = version === null ? `re-store ${label}` : `${label} v${version}`;
    if (ctx.measureText(text).width + 4 * ratio < right - left) {
      ctx.fillStyle = ink.muted;
      ctx.fillText(text, left + 1 * ratio, top + height / 2 - 3 * ratio);
    }
    if (version === null || fromNs <= timeline.since_wall_ns || !lines.delete(left)) continue;
    ctx.strokeStyle = ink.text;
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(left + 0.5, top + height);
    ctx.lineTo(left + 0.5, box.top + box.height);
    ctx.stroke();
    ctx.setLineDash([]);
  }
  ctx.restore();
}

export interface PolicySpan {
  fromNs: number;
  untilNs: number;
  label: string;
  version: number | null;
}

/** The stretches of one policy each. A start that brings no change is no stretch of its own. */
export function policySpans(timeline: Policies): PolicySpan[] {
  const spans: PolicySpan[] = [];
  if (timeline.policy_at_start !== null) {
    spans.push({
      fromNs: timeline.since_wall_ns,
      untilNs: timeline.until_wall_ns,
      label: timeline.policy_at_start,
      version: null,
    });
  }
  const markers: PolicyMarker[] = [...timeline.policy_markers].sort((a, b) => a.wall_ns - b.wall_ns);
  for (const { wall_ns, label, policy_version } of markers) {
    const last = spans.at(-1);
    if (last && last.label === label && (last.version === null || last.version === policy_version)) {
      last.version = last.version === null && wall_ns <= timeline.since_wall_ns ? policy_version : last.version;
      continue;
    }
    if (last) last.untilNs = wall_ns;
    spans.push({ fromNs: wall_ns, untilNs: timeline.until_wall_ns, label, version: policy_version });
  }
  return spans;
}

/** Names the grey bands that are wide enough for it. */
export function paintDown<P extends Bucket>(p: Painter<P>): void {
  const { ctx, ratio, box, ink, slots } = p;
  ctx.save();
  ctx.font = scaled(FONT, ratio);
  ctx.fillStyle = ink.muted;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  let start: number | null = null;
  for (let i = 0; i <= slots.length; i += 1) {
    const isDown = slots[i]?.point.engine_up === false;
    if (isDown) start ??= i;
    if (isDown || start === null) continue;
    const first = slots[start];
    const last = slots[i - 1];
    start = null;
    if (!first || !last) continue;
    const width = last.left + last.width - first.left;
    const text = ["no data: the engine was down", "engine down", "down"].find(
      (candidate) => ctx.measureText(candidate).width + 12 * ratio < width,
    );
    if (text) ctx.fillText(text, first.left + width / 2, box.top + box.height / 2);
  }
  ctx.restore();
}

/** Bars of one count of blocks a bucket. */
export function paintBars(
  p: Painter,
  value: (point: TimelinePoint) => number,
  color: string,
  isHatched: boolean,
): void {
  const { ctx, ratio, box, ink } = p;
  const gap = (p.slots[0]?.width ?? 0) >= 6 * ratio ? ratio : 0;
  const floor = box.top + box.height;
  ctx.save();
  ctx.fillStyle = ink.line;
  ctx.fillRect(box.left, floor - ratio, box.width, ratio);
  ctx.restore();
  clip(p, () => {
    for (const { left, width, point } of p.slots) {
      const blocks = value(point);
      if (blocks <= 0) continue;
      const top = Math.min(Math.round(p.y(blocks)), floor - 2 * ratio);
      ctx.fillStyle = color;
      ctx.fillRect(left, top, Math.max(1, width - gap), floor - top);
      if (isHatched) {
        ctx.fillStyle = hatch(ctx, "rgba(0,0,0,0.35)", ratio, 5);
        ctx.fillRect(left, top, Math.max(1, width - gap), floor - top);
      }
    }
  });
}

/** A level that holds until the next bucket says otherwise, filled to the floor; nothing where it is not known. */
export function paintLevel(p: Painter, value: (point: TimelinePoint) => number | null, color: string): void {
  const { ctx, ratio, box, ink } = p;
  const floor = box.top + box.height;
  ctx.save();
  ctx.fillStyle = ink.line;
  ctx.fillRect(box.left, floor - ratio, box.width, ratio);
  ctx.restore();
  clip(p, () => {
    for (const { left, width, point } of p.slots) {
      const level = value(point);
      if (level === null) continue;
      const top = Math.min(Math.round(p.y(level)), floor - ratio);
      ctx.globalAlpha = 0.3;
      ctx.fillStyle = color;
      ctx.fillRect(left, top, width, floor - top);
      ctx.globalAlpha = 1;
      ctx.fillRect(left, top, width, Math.max(1, 1.5 * ratio));
    }
  });
}

export function clip<P extends Bucket>({ ctx, box }: Painter<P>, paint: () => void): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.left, box.top, box.width, box.height);
  ctx.clip();
  paint();
  ctx.restore();
}

export function scaled(font: string, ratio: number): string {
  return font.replace(/^(\d+)px/, (_, size: string) => `${Number(size) * ratio}px`);
}
