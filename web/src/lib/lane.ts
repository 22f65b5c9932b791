// A request's block chain as a picture: one column a block, one row a moment that changed something. Pure: types only.
// Time runs down. The moments and how all blocks stood are the server's; here they become rows, columns and letters.
import type { LaneSpan, RequestDetail, LaneRow as ServerRow } from "../api/types";

/** What one cell shows. `later`: a block that came after the prompt, so that there was nothing to look up. */
export type CellState = LaneSpan["state"] | "later";

/** What happened to neighbouring blocks, by one row of the log. */
export interface Touch {
  /** Place in the chain of the first block. */
  first: number;
  num: number;
  seq: number;
  kind: string;
  step: number;
  wallNs: number;
  group: number | null;
  requestId: string | null;
  byRequestId: string | null;
}

/** `lookup`: what was found; `moment`: blocks came or went; `own`: the request itself ended or was preempted. */
export interface LaneRow {
  type: "lookup" | "moment" | "own";
  label: string;
  step: number | null;
  wallNs: number | null;
  /** How all blocks stood then, head first. */
  spans: readonly { state: CellState; num: number }[];
  touches: readonly Touch[];
}

export interface Lane {
  rows: readonly LaneRow[];
  numBlocks: number;
  /** Of the first block in its chain: 0, unless the log lost the head. */
  firstIndex: number;
  /** The place of the cut: the red bar stands before this block. Null where nothing was missing. */
  cut: number | null;
  /** Blocks that lay usable behind the cut. */
  numBehind: number;
  /** The row of the lookup; null before there was one. */
  lookupRow: number | null;
}

const OWN: Readonly<Record<string, string>> = { request_finished: "ended", request_preempted: "preempted" };

export function buildLane(detail: RequestDetail): Lane {
  const { chain, lane } = detail;
  const firstIndex = chain[0]?.index ?? 0;
  const numPrompt = Math.max(0, detail.request.num_blocks - firstIndex);
  const own = detail.events.filter((event) => event.kind in OWN);
  const rows: LaneRow[] = [];
  let spans: LaneRow["spans"] = [{ state: "absent", num: chain.length }];
  // What the step that is being read has done so far.
  let step: ServerRow | null = null;
  let touches: Touch[] = [];
  const close = (at: ServerRow | null) => {
    if (at) rows.push({ type: "moment", label: "", step: at.step, wallNs: at.wall_ns, spans, touches });
    step = null;
    touches = [];
  };
  const tellOwn = (at: ServerRow | null, untilSeq: number) => {
    for (let event = own[0]; event && event.seq < untilSeq; event = own[0]) {
      own.shift();
      close(at);
      at = null;
      const label = OWN[event.kind] ?? "";
      rows.push({ type: "own", label, step: event.step, wallNs: event.wall_ns, spans, touches: [] });
    }
    return at;
  };
  for (const row of lane) {
    step = tellOwn(step, row.seq);
    const stood = row.spans.map(({ state, num_blocks }) => ({ state, num: num_blocks }));
    if (row.kind === "lookup") {
      close(step);
      const found = withLater(stood, numPrompt);
      rows.push({ type: "lookup", label: "lookup", step: row.step, wallNs: row.wall_ns, spans: found, touches: [] });
      continue;
    }
    const touch = touchOf(row, firstIndex);
    // One row of the picture for what one step did, unless it did two things to one block.
    if (step?.step !== row.step || touches.some((other) => isAnother(other, touch))) close(step);
    spans = stood;
    step = row;
    touches.push(touch);
  }
  close(tellOwn(step, Number.POSITIVE_INFINITY));
  if (rows.length === 0) rows.push({ type: "own", label: "CPU tier", step: null, wallNs: null, spans, touches: [] });
  const lookupRow = rows.findIndex((row) => row.type === "lookup");
  const asked = rows[lookupRow];
  return {
    rows,
    numBlocks: chain.length,
    firstIndex,
    cut: asked ? placeOf(asked, "missing") : null,
    numBehind: asked ? asked.spans.reduce((sum, { state, num }) => sum + (state === "behind" ? num : 0), 0) : 0,
    lookupRow: asked ? lookupRow : null,
  };
}

function touchOf(row: ServerRow, firstIndex: number): Touch {
  return {
    first: row.first_index - firstIndex,
    num: row.num_blocks,
    seq: row.seq,
    kind: row.kind,
    step: row.step,
    wallNs: row.wall_ns,
    group: row.kv_group,
    requestId: row.request_id,
    byRequestId: row.by_request_id,
  };
}

/** Whether two touches have a block in common and do not say the same of it. */
function isAnother(a: Touch, b: Touch): boolean {
  return a.kind !== b.kind && a.first < b.first + b.num && b.first < a.first + a.num;
}

/** What lies behind the prompt was computed later: the lookup did not ask for it. */
function withLater(spans: LaneRow["spans"], numPrompt: number): LaneRow["spans"] {
  let left = numPrompt;
  return spans.flatMap(({ state, num }) => {
    const asked = Math.max(0, Math.min(num, left));
    left -= asked;
    const parts = [
      { state, num: asked },
      { state: "later" as const, num: num - asked },
    ];
    return parts.filter((part) => part.num > 0);
  });
}

function placeOf(row: LaneRow, wanted: CellState): number | null {
  let place = 0;
  for (const { state, num } of row.spans) {
    if (state === wanted) return place;
    place += num;
  }
  return null;
}

/** How the block at this place stood in a row. */
export function stateAt(row: LaneRow, place: number): CellState {
  let end = 0;
  for (const { state, num } of row.spans) {
    end += num;
    if (place < end) return state;
  }
  return "absent";
}

/** What happened to the block at this place in a row, in the log's order. */
export function touchesAt(row: LaneRow, place: number): readonly Touch[] {
  return row.touches.filter(({ first, num }) => place >= first && place < first + num);
}

/** What last changed the CPU copy of a block, in this row or before it: a load changes nothing. */
export function lastChange(lane: Lane, rowIndex: number, place: number): Touch | null {
  for (let i = rowIndex; i >= 0; i -= 1) {
    const row = lane.rows[i];
    const change = row && touchesAt(row, place).findLast(({ kind }) => kind !== "blocks_loaded");
    if (change) return change;
  }
  return null;
}

/** The rows from so many before the lookup to so many after it; without a lookup, the newest. */
export function cropRows(
  lane: Lane,
  numBefore: number,
  numAfter: number,
): { lane: Lane; before: number; after: number } {
  const { rows, lookupRow } = lane;
  const at = lookupRow ?? rows.length;
  const first = Math.max(0, at - numBefore);
  const end = Math.min(rows.length, at + 1 + numAfter);
  return {
    lane: { ...lane, rows: rows.slice(first, end), lookupRow: lookupRow === null ? null : lookupRow - first },
    before: first,
    after: rows.length - end,
  };
}

/** One column of the picture: `num` neighbouring blocks that look the same in every row. */
export interface Column {
  first: number;
  num: number;
}

/** Every block a column of its own where that fits; otherwise runs of equal blocks fold into one column with a count. */
export function foldColumns(lane: Lane, maxColumns: number): Column[] {
  if (lane.numBlocks <= maxColumns) return Array.from({ length: lane.numBlocks }, (_, first) => ({ first, num: 1 }));
  const borders = new Set([0]);
  for (const row of lane.rows) {
    let place = 0;
    for (const { num } of row.spans) {
      borders.add(place);
      place += num;
    }
    for (const { first, num } of row.touches) borders.add(first).add(first + num);
  }
  const starts = [...borders].filter((place) => place < lane.numBlocks).sort((a, b) => a - b);
  return starts.map((first, i) => ({ first, num: (starts[i + 1] ?? lane.numBlocks) - first }));
}

/** The column that holds the block at this place, or -1. */
export function columnOf(columns: readonly Column[], place: number): number {
  return columns.findIndex((column) => place >= column.first && place < column.first + column.num);
}

const FOUND: Partial<Record<CellState, string>> = {
  gpu_hit: "G",
  cpu_hit: "C",
  restored_hit: "R",
  missing: "×",
  behind: "b",
};

const DONE: Readonly<Record<string, string>> = {
  blocks_stored: "S",
  blocks_restored: "R",
  blocks_evicted: "E",
  blocks_loaded: "L",
  cache_reset: "0",
};

/** The letter that stands in a cell beside its colour. */
export function cellLetter(row: LaneRow, place: number): string {
  if (row.type === "lookup") return FOUND[stateAt(row, place)] ?? "";
  const touch = touchesAt(row, place).at(-1);
  return touch ? (DONE[touch.kind] ?? "·") : "";
}
