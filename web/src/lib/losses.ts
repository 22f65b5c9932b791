// Shapes the causes' answer for the screen: the buckets of the stack, the table's rows, the totals. Pure: types only.
import type { CauseExample, CauseRow, Causes } from "../api/types";
import { CAUSE_ORDER } from "./causes";

export interface LossBucket {
  wall_ns: number;
  lost: readonly { cause: string; tokens: number }[];
  total: number;
}

const rank = (cause: string) => {
  const at = CAUSE_ORDER.indexOf(cause);
  return at < 0 ? CAUSE_ORDER.length : at;
};

/** A bucket's lost tokens by cause, in the order in which causes are stacked on every screen. */
export function lossBuckets(causes: Causes, only: string | null): LossBucket[] {
  return causes.points.map(({ wall_ns, lost_tokens }) => {
    const lost = Object.entries(lost_tokens)
      .filter(([cause]) => only === null || cause === only)
      .map(([cause, tokens]) => ({ cause, tokens }))
      .sort((a, b) => rank(a.cause) - rank(b.cause));
    return { wall_ns, lost, total: lost.reduce((sum, { tokens }) => sum + tokens, 0) };
  });
}

/** Lost tokens by cause over the range, the greatest first; causes that lost nothing are left out. */
export function lostByCause(causes: Causes): { cause: string; tokens: number; lookups: number }[] {
  const sums = new Map<string, { cause: string; tokens: number; lookups: number }>();
  for (const { cause, lost_tokens, num_lookups } of causes.causes) {
    if (cause === null) continue;
    const sum = sums.get(cause) ?? { cause, tokens: 0, lookups: 0 };
    sum.tokens += lost_tokens;
    sum.lookups += num_lookups;
    sums.set(cause, sum);
  }
  return [...sums.values()].filter(({ tokens }) => tokens > 0).sort((a, b) => b.tokens - a.tokens);
}

/** The rows of the table: what lost tokens first, then by how often it happened; whole hits last. */
export function causeRows(causes: Causes, only: string | null): CauseRow[] {
  return causes.causes
    .filter(({ cause }) => only === null || cause === only)
    .sort(
      (a, b) =>
        Number(a.cause === null) - Number(b.cause === null) ||
        b.lost_tokens - a.lost_tokens ||
        b.num_lookups - a.num_lookups,
    );
}

export function examplesOf(causes: Causes, row: Pick<CauseRow, "cause" | "detail">, most = 3): CauseExample[] {
  return causes.examples.filter(({ cause, detail }) => cause === row.cause && detail === row.detail).slice(0, most);
}
