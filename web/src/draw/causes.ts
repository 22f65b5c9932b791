// The stack of lost tokens by cause, a bar a bucket, and the fills that causes have on canvases.
import { causeOf, type Look } from "../lib/causes";
import { COLORS, hatch, type Ink } from "./palette";
import { clip, paintDown } from "./strips";
import type { Bucket, Painter } from "./track";

/** A bucket's lost tokens by cause, from the bottom of the stack to its top. */
export interface CauseBucket extends Bucket {
  lost: readonly { cause: string; tokens: number }[];
  total: number;
}

export function paintCauses(p: Painter<CauseBucket>): void {
  paintDown(p);
  const { ctx, ratio } = p;
  const gap = (p.slots[0]?.width ?? 0) >= 6 * ratio ? ratio : 0;
  clip(p, () => {
    for (const { left, width, point } of p.slots) {
      let base = 0;
      for (const { cause, tokens } of point.lost) {
        if (tokens <= 0) continue;
        const bottom = Math.round(p.y(base));
        base += tokens;
        const top = Math.round(p.y(base));
        ctx.fillStyle = p.ink.back;
        ctx.fillRect(left, top, Math.max(1, width - gap), Math.max(1, bottom - top));
        ctx.fillStyle = fillOf(ctx, causeOf(cause), p.ink, ratio);
        ctx.fillRect(left, top, Math.max(1, width - gap), Math.max(1, bottom - top));
      }
    }
  });
}

export function colorOf(look: Look, ink: Ink): string {
  return look.tone === "ink" ? ink.text : COLORS[look.tone];
}

function fillOf(ctx: CanvasRenderingContext2D, look: Look, ink: Ink, ratio: number): string | CanvasPattern {
  const color = colorOf(look, ink);
  return look.isHatched ? hatch(ctx, color, ratio, 5) : color;
}
