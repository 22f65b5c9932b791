// The colours of everything that is drawn: Okabe–Ito, the same in every view, in light and dark. May be imported by views.
import type { Tone } from "../lib/events";

/** The role colours. `plain` and `alarm` are the theme's own ink and the loss colour. */
export const COLORS: Readonly<Record<Exclude<Tone, "plain" | "alarm">, string>> = {
  gpu: "#009E73",
  cpu: "#0072B2",
  restored: "#CC79A7",
  computed: "#999999",
  lost: "#D55E00",
  flight: "#F0E442",
  pinned: "#56B4E9",
};

export interface Ink {
  text: string;
  muted: string;
  line: string;
  grid: string;
  back: string;
  gap: string;
}

/** What the stylesheet says of the theme, for canvases. */
export function readInk(isDark: boolean): Ink {
  return isDark
    ? { text: "#e8e8e6", muted: "#a9a9a6", line: "#3a3b3d", grid: "#242628", back: "#121314", gap: "#1d1e20" }
    : { text: "#1b1b1a", muted: "#5c5c59", line: "#cfcfcb", grid: "#ebebe8", back: "#ffffff", gap: "#f1f1ee" };
}

export const FONT = '13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** The ink that can be read on a role colour. */
export function inkOn(tone: Tone): string {
  return tone === "cpu" ? "#ffffff" : "#111111";
}

const hatches = new Map<string, CanvasPattern>();

/** Diagonal stripes of `color`, transparent between: the mark beside the colour. `ratio`: device pixels a CSS pixel. */
export function hatch(ctx: CanvasRenderingContext2D, color: string, ratio: number, gapPx = 6): CanvasPattern | string {
  const key = `${color} ${ratio} ${gapPx}`;
  const known = hatches.get(key);
  if (known) return known;
  const size = Math.max(4, Math.round(gapPx * ratio));
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const pen = tile.getContext("2d");
  if (!pen) return color;
  pen.strokeStyle = color;
  pen.lineWidth = Math.max(1, size / 4);
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
  }
  pen.stroke();
  const pattern = ctx.createPattern(tile, "repeat");
  if (!pattern) return color;
  hatches.set(key, pattern);
  return pattern;
}
