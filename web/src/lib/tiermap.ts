// The CPU tier as a picture: one cell a block, in the order of ids or in the order in which blocks would go. Pure: types only.
import type { TierBlock } from "../api/types";

/** What the cells' colour tells. */
export type Paint = "state" | "age" | "conversation";
export type Order = "id" | "eviction";

/** How a cell looks: a role of the palette, with a letter beside it. */
export interface CellLook {
  role:
    | "free"
    | "cached"
    | "restored"
    | "pinned"
    | "in_flight"
    | "unknown"
    | `age${AgeClass}`
    | `conv${number}`
    | "other";
  letter: string;
}

type AgeClass = 0 | 1 | 2 | 3 | 4;

/** Upper edges of the classes of age in nanoseconds; what is older is in the last. */
export const AGE_EDGES_NS = [1e9, 10e9, 60e9, 600e9] as const;
export const NUM_CONVERSATION_COLORS = 8;

const STATE_LETTERS: Readonly<Record<TierBlock["state"], string>> = {
  free: "",
  cached: "",
  pinned: "↑",
  in_flight: "↓",
  unknown: "?",
};

/** The blocks in the order in which they are drawn. Those that cannot go now come last in the order of eviction. */
export function arrange(blocks: readonly TierBlock[], order: Order): TierBlock[] {
  if (order === "id") return [...blocks].sort((a, b) => a.id - b.id);
  const rank = (block: TierBlock) => block.eviction_rank ?? (block.state === "free" ? -1 : Number.POSITIVE_INFINITY);
  return [...blocks].sort((a, b) => (rank(a) === rank(b) ? a.id - b.id : rank(a) < rank(b) ? -1 : 1));
}

export interface Owner {
  id: string;
  letter: string;
  blocks: number;
}

/** Conversations that hold blocks, the largest first: each has a letter, the first few a colour too. */
export function owners(blocks: readonly TierBlock[]): Owner[] {
  const counts = new Map<string, number>();
  for (const { conversation_id: id } of blocks) if (id !== null) counts.set(id, (counts.get(id) ?? 0) + 1);
  return [...counts]
    .sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1))
    .map(([id, num], i) => ({ id, blocks: num, letter: letterOf(i) }));
}

/** A … Z, then a … z, then a dot. */
function letterOf(index: number): string {
  if (index < 26) return String.fromCharCode(65 + index);
  return index < 52 ? String.fromCharCode(97 + index - 26) : "·";
}

export function ageClass(ageNs: number): AgeClass {
  const at = AGE_EDGES_NS.findIndex((edge) => ageNs < edge);
  return (at < 0 ? AGE_EDGES_NS.length : at) as AgeClass;
}

/** The look of each block under one way of painting. */
export function lookFor(paint: Paint, all: readonly Owner[]): (block: TierBlock) => CellLook {
  const places = new Map(all.map(({ id }, i) => [id, i]));
  return (block) => {
    const special = block.state !== "cached";
    if (special) return { role: block.state as CellLook["role"], letter: STATE_LETTERS[block.state] };
    if (paint === "age") {
      if (block.age_ns === null) return { role: "unknown", letter: "?" };
      const age = ageClass(block.age_ns);
      return { role: `age${age}`, letter: String(age + 1) };
    }
    if (paint === "conversation") {
      const at = block.conversation_id === null ? undefined : places.get(block.conversation_id);
      if (at === undefined) return { role: "other", letter: "" };
      const letter = all[at]?.letter ?? "·";
      return at < NUM_CONVERSATION_COLORS ? { role: `conv${at}`, letter } : { role: "other", letter };
    }
    return block.is_restored ? { role: "restored", letter: "R" } : { role: "cached", letter: "" };
  };
}

/** The grid: columns that fit, and the edge of a cell in pixels. */
export function gridOf(numBlocks: number, width: number): { columns: number; cell: number; rows: number } {
  // Large enough for a letter while the map stays about a screen high; small squares where there are thousands.
  const cell = [30, 24, 20, 16, 12, 9].find(
    (size) => Math.ceil(numBlocks / Math.max(1, Math.floor(width / size))) * size <= 420,
  );
  const size = cell ?? 7;
  const columns = Math.max(1, Math.min(numBlocks, Math.floor(width / size)));
  return { columns, cell: size, rows: Math.ceil(numBlocks / columns) };
}

/** Where an arrow key leads in a grid. */
export function moveIn(key: string, at: number, columns: number, total: number): number | null {
  const moves: Record<string, number> = {
    ArrowLeft: at - 1,
    ArrowRight: at + 1,
    ArrowUp: at - columns,
    ArrowDown: at + columns,
    Home: 0,
    End: total - 1,
  };
  const next = moves[key];
  return next === undefined ? null : next < 0 || next >= total ? at : next;
}
