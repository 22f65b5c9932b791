// Draws the map of the CPU tier on a canvas. Takes looks from lib/tiermap, keeps no state.
import type { CellLook } from "../lib/tiermap";
import { COLORS, hatch, type Ink } from "./palette";

/** Five steps of one hue, the youngest the darkest; the digit in the cell says the same. */
const AGES = ["#00486f", "#0072b2", "#4f9fcd", "#9fc9e3", "#d9eaf4"] as const;
/** Eight tints that are none of the colours with a meaning; the letter in the cell says the same. */
const CONVERSATIONS = ["#332288", "#88ccaa", "#ddcc77", "#aa4466", "#999933", "#77aadd", "#661100", "#bbccee"] as const;

export interface Fill {
  color: string;
  /** The letter's ink. */
  ink: string;
  isHatched?: boolean;
  isOutline?: boolean;
}

export function fillOf(role: CellLook["role"], ink: Ink): Fill {
  switch (role) {
    case "free":
      return { color: ink.line, ink: ink.muted, isOutline: true };
    case "unknown":
      return { color: ink.line, ink: ink.text, isHatched: true };
    case "cached":
      return { color: COLORS.cpu, ink: "#ffffff" };
    case "restored":
      return { color: COLORS.restored, ink: "#111111" };
    case "pinned":
      return { color: COLORS.pinned, ink: "#111111" };
    case "in_flight":
      return { color: COLORS.flight, ink: "#111111" };
    case "other":
      return { color: COLORS.computed, ink: "#111111" };
    default: {
      const index = Number(role.slice(-1));
      const color = (role.startsWith("age") ? AGES[index] : CONVERSATIONS[index]) ?? COLORS.computed;
      return { color, ink: isDarkColor(color) ? "#ffffff" : "#111111" };
    }
  }
}

function isDarkColor(hex: string): boolean {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 120;
}

export interface MapMarks {
  focus: number | null;
  pinned: number | null;
}

export function drawMap(
  canvas: HTMLCanvasElement,
  looks: readonly CellLook[],
  grid: { columns: number; cell: number; rows: number },
  ink: Ink,
  marks: MapMarks,
): void {
  const ratio = window.devicePixelRatio || 1;
  const width = grid.columns * grid.cell + 4;
  const height = grid.rows * grid.cell + 4;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  ctx.scale(ratio, ratio);
  ctx.font = `600 ${grid.cell >= 20 ? 12 : 10}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const gap = grid.cell >= 12 ? 2 : 1;
  const size = grid.cell - gap;
  looks.forEach((look, i) => {
    const left = 2 + (i % grid.columns) * grid.cell;
    const top = 2 + Math.floor(i / grid.columns) * grid.cell;
    const fill = fillOf(look.role, ink);
    if (fill.isOutline) {
      ctx.strokeStyle = fill.color;
      ctx.lineWidth = 1;
      ctx.strokeRect(left + 0.5, top + 0.5, size - 1, size - 1);
    } else {
      ctx.fillStyle = fill.isHatched ? hatch(ctx, fill.color, ratio, 5) : fill.color;
      ctx.fillRect(left, top, size, size);
    }
    if (look.letter && grid.cell >= 12) {
      ctx.fillStyle = fill.ink;
      ctx.fillText(look.letter, left + size / 2, top + size / 2 + 0.5);
    }
  });
  frame(ctx, marks.pinned, grid, size, COLORS.pinned);
  frame(ctx, marks.focus, grid, size, ink.text);
}

function frame(
  ctx: CanvasRenderingContext2D,
  at: number | null,
  grid: { columns: number; cell: number },
  size: number,
  color: string,
): void {
  if (at === null) return;
  ctx.strokeStyle = color;
  ctx.lineWidth = 2;
  ctx.strokeRect(
    1 + (at % grid.columns) * grid.cell,
    1 + Math.floor(at / grid.columns) * grid.cell,
    size + 2,
    size + 2,
  );
}
