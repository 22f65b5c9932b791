// A request's block chain as a picture: one column a block, one row a moment that changed something. Pure: types only.
// The first row is the lookup, the second what the CPU tier held just then, the rest what has happened since.
import type { BlockMoment, RequestDetail } from "../api/types";

/** What one cell shows. `beyond`: the CPU tier held the block, but behind the cut, where no lookup reaches. */
export type CellState =
  | "gpu"
  | "cpu"
  | "cpu_restored"
  | "missing"
  | "computed"
  | "beyond"
  | "pending"
  | "in"
  | "in_restored"
  | "out"
  | "none";

export interface Cell {
  state: CellState;
  /** What happened to the block in this row; null where the row changed another block only. */
  moment: BlockMoment | null;
}

export interface LaneRow {
  type: "lookup" | "then" | "moment";
  step: number | null;
  wallNs: number | null;
  cells: readonly Cell[];
}

export interface Lane {
  rows: readonly LaneRow[];
  numBlocks: number;
  /** The cut: the red bar stands before this block. Null where nothing was missing. */
  cut: number | null;
  /** Blocks that lay usable behind the cut. */
  numBeyond: number;
  /** Moments left out at the old end, to keep the picture drawable. */
  numHiddenMoments: number;
}

const CHANGES: Readonly<Record<string, CellState | undefined>> = {
  blocks_stored: "in",
  blocks_restored: "in_restored",
  blocks_evicted: "out",
  cache_reset: "out",
};

/** Builds the rows out of what the API says about a request. `maxMoments`: the newest that many are kept. */
export function buildLane(detail: RequestDetail, maxMoments = 300): Lane {
  const { chain } = detail;
  const lookup = detail.events.find((event) => event.kind === "lookup");
  const lookupSeq = lookup?.seq ?? 0;
  const asked = detail.request.gpu_hit_tokens !== null;
  const cut = asked ? firstIndex(chain.map((block) => block.source === "missing")) : null;

  let states: CellState[] = chain.map((block) => {
    const before = block.history.filter((moment) => moment.seq < lookupSeq);
    return before.reduce<CellState>((state, moment) => CHANGES[moment.kind] ?? state, "none");
  });
  const held = (state: CellState | undefined) => state === "in" || state === "in_restored";

  const rows: LaneRow[] = [];
  let numBeyond = 0;
  if (asked) {
    const cells = chain.map((block, i): Cell => {
      if (block.source === "cpu") return { state: states[i] === "in_restored" ? "cpu_restored" : "cpu", moment: null };
      if (block.source !== "computed") return { state: block.source, moment: null };
      const beyond = cut !== null && i > cut && held(states[i]);
      if (beyond) numBeyond += 1;
      return { state: beyond ? "beyond" : "computed", moment: null };
    });
    rows.push({ type: "lookup", step: lookup?.step ?? null, wallNs: lookup?.wall_ns ?? null, cells });
  }
  rows.push({
    type: "then",
    step: null,
    wallNs: null,
    cells: states.map((state) => ({ state, moment: null })),
  });

  const moments = new Map<number, { moment: BlockMoment; index: number }[]>();
  chain.forEach((block, index) => {
    for (const moment of block.history) {
      if (moment.seq < lookupSeq) continue;
      const list = moments.get(moment.step);
      if (list) list.push({ moment, index });
      else moments.set(moment.step, [{ moment, index }]);
    }
  });
  const ordered = [...moments.values()].sort((a, b) => (a[0]?.moment.seq ?? 0) - (b[0]?.moment.seq ?? 0));
  const numHiddenMoments = Math.max(0, ordered.length - maxMoments);
  ordered.forEach((list, at) => {
    const next = [...states];
    const changed = new Map<number, BlockMoment>();
    for (const { moment, index } of list.sort((a, b) => a.moment.seq - b.moment.seq)) {
      next[index] = CHANGES[moment.kind] ?? next[index] ?? "none";
      changed.set(index, moment);
    }
    states = next;
    if (at < numHiddenMoments) return;
    const last = list.at(-1)?.moment;
    rows.push({
      type: "moment",
      step: last?.step ?? null,
      wallNs: last?.wall_ns ?? null,
      cells: next.map((state, i) => ({ state, moment: changed.get(i) ?? null })),
    });
  });
  return { rows, numBlocks: chain.length, cut, numBeyond, numHiddenMoments };
}

function firstIndex(flags: boolean[]): number | null {
  const at = flags.indexOf(true);
  return at < 0 ? null : at;
}

/** One column of the picture: `num` neighbouring blocks that look the same in every row. */
export interface Column {
  first: number;
  num: number;
}

/** Every block a column of its own where that fits; otherwise runs of equal blocks fold into one column with a count. */
export function foldColumns(lane: Lane, maxColumns: number): Column[] {
  const indices = Array.from({ length: lane.numBlocks }, (_, i) => i);
  if (lane.numBlocks <= maxColumns) return indices.map((first) => ({ first, num: 1 }));
  const looks = indices.map((i) =>
    lane.rows.map((row) => `${row.cells[i]?.state}${row.cells[i]?.moment?.seq ?? ""}`).join("|"),
  );
  const columns: Column[] = [];
  for (const i of indices) {
    const last = columns.at(-1);
    if (last && looks[last.first] === looks[i]) last.num += 1;
    else columns.push({ first: i, num: 1 });
  }
  return columns;
}

/** The column that holds block `index`, or -1. */
export function columnOf(columns: readonly Column[], index: number): number {
  return columns.findIndex((column) => index >= column.first && index < column.first + column.num);
}

/** The letter that stands in a cell beside its colour. */
export function cellLetter(cell: Cell, type: LaneRow["type"]): string {
  if (type === "lookup") {
    const letters: Partial<Record<CellState, string>> = {
      gpu: "G",
      cpu: "C",
      cpu_restored: "R",
      missing: "×",
      beyond: "b",
    };
    return letters[cell.state] ?? "";
  }
  if (cell.moment === null) return "";
  const letters: Readonly<Record<BlockMoment["kind"], string>> = {
    blocks_stored: "S",
    blocks_restored: "R",
    blocks_evicted: "E",
    blocks_loaded: "L",
    cache_reset: "0",
  };
  return letters[cell.moment.kind];
}
