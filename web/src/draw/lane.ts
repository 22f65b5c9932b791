// Draws a block lane on a canvas and says which cell lies under a point. Takes the picture from lib/lane, keeps no state.
import { clock, count, duration } from "../lib/format";
import { type CellState, type Column, cellLetter, type Lane, type LaneRow, stateAt, touchesAt } from "../lib/lane";
import { COLORS, FONT, hatch, type Ink } from "./palette";

export const ROW_HEIGHT = 22;
export const HEAD_HEIGHT = 20;
export const LOOKUP_HEIGHT = 30;
export const MIN_CELL = 16;
const MAX_CELL = 34;
/** A folded column has to hold a letter and a count. */
const MAX_FOLDED = 64;
const GAP = 2;

/** The measures of one drawing, in CSS pixels. */
export interface Layout {
  gutter: number;
  cell: number;
  width: number;
  height: number;
  tops: readonly number[];
}

/** How many columns fit beside the gutter. */
export function fitColumns(available: number, gutter: number): number {
  return Math.max(4, Math.floor((available - gutter) / MIN_CELL));
}

export function layoutOf(lane: Lane, columns: readonly Column[], available: number, gutter: number): Layout {
  const room = available - gutter;
  const widest = columns.some(({ num }) => num > 1) ? MAX_FOLDED : MAX_CELL;
  const cell = Math.max(MIN_CELL, Math.min(widest, Math.floor(room / Math.max(1, columns.length))));
  const tops: number[] = [];
  let top = HEAD_HEIGHT;
  for (const row of lane.rows) {
    tops.push(top);
    top += rowHeight(row);
  }
  return { gutter, cell, width: gutter + cell * columns.length + 2, height: top + 4, tops };
}

const rowHeight = (row: LaneRow) => (row.type === "lookup" ? LOOKUP_HEIGHT : ROW_HEIGHT);

export interface Hit {
  row: number;
  column: number;
}

/** The cell under a point; null beside the cells. */
export function hitTest(layout: Layout, lane: Lane, columns: readonly Column[], x: number, y: number): Hit | null {
  const column = Math.floor((x - layout.gutter) / layout.cell);
  if (x < layout.gutter || column >= columns.length) return null;
  const row = layout.tops.findIndex((top, i) => {
    const it = lane.rows[i];
    return it !== undefined && y >= top && y < top + rowHeight(it);
  });
  return row < 0 ? null : { row, column };
}

export interface Marks {
  focus: Hit | null;
  pinned: number | null;
}

export function drawLane(
  canvas: HTMLCanvasElement,
  lane: Lane,
  columns: readonly Column[],
  layout: Layout,
  ink: Ink,
  marks: Marks,
): void {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(layout.width * ratio);
  canvas.height = Math.round(layout.height * ratio);
  canvas.style.width = `${layout.width}px`;
  canvas.style.height = `${layout.height}px`;
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  ctx.scale(ratio, ratio);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  drawHead(ctx, lane, columns, layout, ink);
  const lookup = lane.rows.find((row) => row.type === "lookup");
  lane.rows.forEach((row, i) => {
    const top = layout.tops[i] ?? 0;
    drawLabel(ctx, row, top, layout, ink, lookup?.wallNs ?? null);
    columns.forEach((column, c) => {
      drawCell(ctx, row, column, layout.gutter + c * layout.cell, top, layout.cell, ink, ratio);
    });
  });
  drawMarks(ctx, lane, columns, layout, ink, marks);
}

/** Block indices above the columns, as many as can be read. */
function drawHead(
  ctx: CanvasRenderingContext2D,
  lane: Lane,
  columns: readonly Column[],
  layout: Layout,
  ink: Ink,
): void {
  ctx.fillStyle = ink.muted;
  ctx.textAlign = "center";
  let free = layout.gutter - 4;
  columns.forEach((column, c) => {
    const text = String(lane.firstIndex + column.first);
    const middle = layout.gutter + (c + 0.5) * layout.cell;
    const half = ctx.measureText(text).width / 2;
    if (middle - half < free) return;
    ctx.fillText(text, middle, HEAD_HEIGHT / 2);
    free = middle + half + 10;
  });
}

function drawLabel(
  ctx: CanvasRenderingContext2D,
  row: LaneRow,
  top: number,
  layout: Layout,
  ink: Ink,
  lookupNs: number | null,
): void {
  const middle = top + rowHeight(row) / 2;
  const isWide = layout.gutter > 100;
  ctx.textAlign = "left";
  ctx.fillStyle = row.type === "moment" ? ink.muted : ink.text;
  ctx.fillText(row.label || count(row.step), 0, middle);
  if (!isWide || row.wallNs === null) return;
  ctx.fillStyle = ink.muted;
  ctx.textAlign = "right";
  ctx.fillText(momentText(row, lookupNs), layout.gutter - 10, middle);
}

/** When it was: from the lookup on, or the time of day. */
function momentText(row: LaneRow, lookupNs: number | null): string {
  if (row.wallNs === null) return "";
  if (lookupNs === null || row.type === "lookup") return clock(row.wallNs);
  const after = row.wallNs - lookupNs;
  return after < 0 ? duration(after) : `+${duration(after)}`;
}

interface Look {
  fill: string | null;
  stripes?: string;
  border?: string;
  letter: string;
}

function lookOf(state: CellState, ink: Ink): Look {
  switch (state) {
    case "gpu_hit":
      return { fill: COLORS.gpu, letter: "#111111" };
    case "cpu_hit":
    case "cached":
      return { fill: COLORS.cpu, letter: "#ffffff" };
    case "restored_hit":
    case "restored":
      return { fill: COLORS.restored, letter: "#111111" };
    case "missing":
      return { fill: ink.back, border: COLORS.lost, letter: ink.text };
    case "behind":
      return { fill: ink.back, stripes: COLORS.cpu, border: COLORS.cpu, letter: ink.text };
    case "computed":
      // Its fill lets the ground shine through, so its letter is of the ground's ink.
      return { fill: COLORS.computed, letter: ink.text };
    default:
      return { fill: null, border: ink.line, letter: ink.text };
  }
}

function drawCell(
  ctx: CanvasRenderingContext2D,
  row: LaneRow,
  column: Column,
  left: number,
  top: number,
  size: number,
  ink: Ink,
  ratio: number,
): void {
  const state = stateAt(row, column.first);
  const touched = touchesAt(row, column.first).at(-1);
  const look = lookOf(state, ink);
  const border = touched?.kind === "blocks_evicted" ? COLORS.lost : look.border;
  const height = rowHeight(row) - GAP;
  const width = size - GAP;
  // In the rows of moments, what did not change steps back.
  const isCalm = row.type !== "lookup" && touched === undefined;
  ctx.save();
  ctx.globalAlpha = isCalm ? 0.42 : state === "computed" ? 0.4 : 1;
  if (look.fill) {
    ctx.fillStyle = look.fill;
    ctx.fillRect(left, top, width, height);
  }
  if (look.stripes) {
    ctx.fillStyle = hatch(ctx, look.stripes, ratio, 5);
    ctx.fillRect(left, top, width, height);
  }
  if (border) {
    const line = state === "missing" || touched ? 2 : 1;
    ctx.strokeStyle = border;
    ctx.lineWidth = line;
    ctx.strokeRect(left + line / 2, top + line / 2, width - line, height - line);
  }
  ctx.globalAlpha = 1;
  const letter = cellText(ctx, row, column, width);
  if (letter) {
    ctx.fillStyle = look.letter;
    ctx.textAlign = "center";
    if (state === "behind") {
      // The letter stands on the stripes: give it ground.
      ctx.fillStyle = ink.back;
      const half = ctx.measureText(letter).width / 2 + 2;
      ctx.fillRect(left + width / 2 - half, top + height / 2 - 8, 2 * half, 16);
      ctx.fillStyle = ink.text;
    }
    ctx.fillText(letter, left + width / 2, top + height / 2 + 0.5, width);
  }
  ctx.restore();
}

/** The letter; in the lookup's row of a folded column the count too, as far as there is room. */
function cellText(ctx: CanvasRenderingContext2D, row: LaneRow, column: Column, width: number): string {
  const letter = cellLetter(row, column.first);
  if (column.num === 1 || row.type !== "lookup") return letter;
  const texts = [`${letter} ${column.num}`.trim(), String(column.num)];
  return texts.find((text) => ctx.measureText(text).width + 2 <= width) ?? letter;
}

function drawMarks(
  ctx: CanvasRenderingContext2D,
  lane: Lane,
  columns: readonly Column[],
  layout: Layout,
  ink: Ink,
  marks: Marks,
): void {
  const bottom = layout.height - 4 - GAP;
  const pinned = marks.pinned;
  const column = pinned === null ? -1 : columns.findIndex((c) => pinned >= c.first && pinned < c.first + c.num);
  if (column >= 0) {
    const left = layout.gutter + column * layout.cell;
    ctx.strokeStyle = COLORS.pinned;
    ctx.lineWidth = 2;
    ctx.strokeRect(left - 2, 1, layout.cell + 2, bottom + 1);
  }
  const cut = lane.cut === null ? -1 : columns.findIndex((column) => column.first === lane.cut);
  const lookupTop = lane.lookupRow === null ? undefined : layout.tops[lane.lookupRow];
  if (cut >= 0 && lookupTop !== undefined) {
    const left = layout.gutter + cut * layout.cell - GAP / 2;
    ctx.fillStyle = COLORS.lost;
    ctx.fillRect(left - 1.5, lookupTop - 4, 3, LOOKUP_HEIGHT + 6);
  }
  const { focus } = marks;
  const row = focus && lane.rows[focus.row];
  if (focus && row) {
    ctx.strokeStyle = ink.text;
    ctx.lineWidth = 2;
    const left = layout.gutter + focus.column * layout.cell;
    ctx.strokeRect(left - 1, (layout.tops[focus.row] ?? 0) - 1, layout.cell, rowHeight(row));
  }
}
