// The hit rates of the shadows as lines over the sources of prompt tokens. Lines are told apart by their dashes and by the
// name at their end; a halo of the ground keeps them readable on bars.
import type { LineStyle } from "../lib/shadows";
import { COLORS, FONT, type Ink } from "./palette";
import { spread } from "./scale";
import { clip, scaled } from "./strips";
import type { Bucket, Painter } from "./track";

export interface ShadowLine {
  style: LineStyle;
  label: string;
  /** Hit rate by the start of its bucket in wall nanoseconds; what is missing is a gap. */
  rates: ReadonlyMap<number, number>;
}

export const DASHES: Readonly<Record<LineStyle, readonly number[]>> = {
  truth: [],
  off: [6, 4],
  tracked: [],
  rescan: [10, 3, 2, 3],
  unlimited: [2, 3],
};

export function lineColor(style: LineStyle, ink: Ink): string {
  return style === "tracked" || style === "rescan" ? COLORS.restored : ink.text;
}

export function paintShadows<P extends Bucket>(p: Painter<P>, lines: readonly ShadowLine[]): void {
  const { ctx, ratio, ink, box } = p;
  const ends: { y: number; label: string }[] = [];
  clip(p, () => {
    for (const line of lines) {
      const path = new Path2D();
      let isDown = false;
      let end: number | null = null;
      for (const { left, width, point } of p.slots) {
        if (point.engine_up === false) isDown = false;
        const rate = line.rates.get(point.wall_ns);
        // Where nobody asked anything there is no rate, and the line goes on at the next bucket that has one.
        if (rate === undefined) continue;
        const y = p.y(rate);
        const x = left + width / 2;
        if (isDown) path.lineTo(x, y);
        else path.moveTo(x, y);
        isDown = true;
        end = y;
      }
      ctx.lineJoin = "round";
      ctx.setLineDash([]);
      ctx.strokeStyle = ink.back;
      ctx.globalAlpha = 0.8;
      ctx.lineWidth = 4.5 * ratio;
      ctx.stroke(path);
      ctx.globalAlpha = 1;
      ctx.strokeStyle = lineColor(line.style, ink);
      ctx.lineWidth = 2 * ratio;
      ctx.setLineDash(DASHES[line.style].map((dash) => dash * ratio));
      ctx.stroke(path);
      ctx.setLineDash([]);
      if (end !== null) ends.push({ y: end, label: line.label });
    }
  });
  ctx.save();
  ctx.font = scaled(FONT, ratio);
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const places = spread(
    ends.map(({ y }) => y - 10 * ratio),
    16 * ratio,
    box.top + 8 * ratio,
    box.top + box.height - 8 * ratio,
  );
  ends.forEach(({ label }, i) => {
    const right = box.left + box.width - 4 * ratio;
    const y = places[i] ?? 0;
    ctx.lineWidth = 4 * ratio;
    ctx.strokeStyle = ink.back;
    ctx.strokeText(label, right, y);
    ctx.fillStyle = ink.text;
    ctx.fillText(label, right, y);
  });
  ctx.restore();
}
