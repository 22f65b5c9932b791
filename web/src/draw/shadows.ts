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
  adaptive: [12, 3],
  "adaptive-off": [4, 2, 1, 2],
  unlimited: [2, 3],
  heads: [14, 4],
};

export function lineColor(style: LineStyle, ink: Ink): string {
  return style === "tracked" || style === "rescan" ? COLORS.restored : ink.text;
}

/** `isNamed`: each line's name stands beside the plot, where its end is. */
export function paintShadows<P extends Bucket>(p: Painter<P>, lines: readonly ShadowLine[], isNamed: boolean): void {
  const { ctx, ratio, ink } = p;
  // Dashed lines above whole ones: of two that say the same, both can be seen.
  const drawn = [...lines]
    .sort((a, b) => DASHES[a.style].length - DASHES[b.style].length)
    .map((line) => ({ line, ...pathOf(p, line) }));
  clip(p, () => {
    ctx.lineJoin = "round";
    ctx.strokeStyle = ink.back;
    ctx.globalAlpha = 0.8;
    ctx.lineWidth = 4.5 * ratio;
    for (const { path } of drawn) ctx.stroke(path);
    ctx.globalAlpha = 1;
    for (const { line, path } of drawn) {
      pen(p, line.style);
      ctx.stroke(path);
    }
    ctx.setLineDash([]);
  });
  if (isNamed) writeNames(p, drawn);
}

/** The line on the canvas, and the height of its end. */
function pathOf<P extends Bucket>(p: Painter<P>, line: ShadowLine): { path: Path2D; end: number | null } {
  const path = new Path2D();
  let isDown = false;
  let end: number | null = null;
  for (const { left, width, point } of p.slots) {
    if (point.engine_up === false) isDown = false;
    const rate = line.rates.get(point.wall_ns);
    // Where nobody asked anything there is no rate, and the line goes on at the next bucket that has one.
    if (rate === undefined) continue;
    const y = p.y(rate);
    if (isDown) path.lineTo(left + width / 2, y);
    else path.moveTo(left + width / 2, y);
    isDown = true;
    end = y;
  }
  return { path, end };
}

function pen<P extends Bucket>({ ctx, ratio, ink }: Painter<P>, style: LineStyle): void {
  ctx.strokeStyle = lineColor(style, ink);
  ctx.lineWidth = 2 * ratio;
  ctx.setLineDash(DASHES[style].map((dash) => dash * ratio));
}

const SAMPLE = 16;

/** In the margin, so that they hide neither bars nor lines: a piece of the line, and its name. */
function writeNames<P extends Bucket>(p: Painter<P>, drawn: readonly { line: ShadowLine; end: number | null }[]): void {
  const { ctx, ratio, ink, box } = p;
  const named = drawn.flatMap(({ line, end }) => (end === null ? [] : [{ line, end }]));
  const places = spread(
    named.map(({ end }) => end),
    16 * ratio,
    box.top + 8 * ratio,
    box.top + box.height - 8 * ratio,
  );
  const left = box.left + box.width + 6 * ratio;
  ctx.save();
  ctx.font = scaled(FONT, ratio);
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  named.forEach(({ line }, i) => {
    const y = places[i] ?? 0;
    pen(p, line.style);
    ctx.beginPath();
    ctx.moveTo(left, y);
    ctx.lineTo(left + SAMPLE * ratio, y);
    ctx.stroke();
    ctx.fillStyle = ink.text;
    ctx.fillText(line.label, left + (SAMPLE + 5) * ratio, y);
  });
  ctx.restore();
}
