// Shapes what `adaptive` says of itself for the screen: the learned curve, and why it goes by which rule. Pure.
import type { RetentionState, RetentionView, RuleSwitch } from "../api/types";
import { NONE, plural } from "./format";
import type { LineStyle } from "./shadows";

const NAMES = ["left behind", "1st turn", "2nd turn", "3rd turn", "later turns", "shared heads"] as const;
/** The shapes of the points of each line, as `Curve` draws them for these styles: lines that meet are told apart by them. */
const SHAPES = ["○", "■", "◆", "△", "✕", "▽"] as const;
const STYLES: readonly LineStyle[] = ["off", "tracked", "rescan", "unlimited", "truth", "heads"];
/** Where the first stretch of idle time, which starts at nothing, stands on an axis that has no 0. */
const NOTHING_S = 0.25;
/** Fewer returns than this and a class is drawn like all others: a line of its own would say nothing. */
const FEW_RETURNS = 0.5;

export interface WorthLine {
  name: string;
  style: LineStyle;
  points: { x: number; y: number | null; words: string }[];
}

/** What chains that were asked for so often are called. */
export function className(turns: number | null): string {
  return NAMES[place(turns)] ?? `${turns} turns`;
}

/** Where a class stands in the lists above: heads that prompts share have no number of turns. */
function place(turns: number | null): number {
  return turns ?? NAMES.length - 1;
}

/** A line a class of which something came back, worth over seconds of idle time; and the names of the others. */
export function worthLines({ edges_s: edges, classes }: RetentionState): { lines: WorthLine[]; unseen: string[] } {
  const isSeen = ({ returns }: { returns: number }) => returns >= FEW_RETURNS;
  return {
    lines: classes.filter(isSeen).map(({ turns, worth }) => ({
      name: `${SHAPES[place(turns)] ?? ""} ${className(turns)}`,
      style: STYLES[place(turns)] ?? "off",
      points: doublings(edges).map((bucket) => {
        const x = edges[bucket] || NOTHING_S;
        const y = worth[bucket] ?? null;
        return { x, y, words: `${className(turns)}, idle for ${idleWords(x)}: worth ${points(y)}` };
      }),
    })),
    unseen: classes.filter((each) => !isSeen(each)).map(({ turns }) => className(turns)),
  };
}

/** Every second bucket: their edges grow by the square root of two, so these double. The first and the last are kept. */
function doublings(edges: readonly number[]): number[] {
  return edges.map((_, bucket) => bucket).filter((bucket) => bucket === 0 || bucket % 2 === 1);
}

/** A length of idle time, in the unit that suits it. */
export function idleWords(seconds: number): string {
  if (seconds <= NOTHING_S) return "0\u00a0s";
  if (seconds < 60) return `${seconds < 1 ? seconds : Math.round(seconds)}\u00a0s`;
  return `${Math.round(seconds / 60)}\u00a0m`;
}

/** A rate with one decimal: the guard goes by differences of a point. */
export function points(rate: number | null | undefined): string {
  return rate === null || rate === undefined ? NONE : `${(rate * 100).toFixed(1)}\u00a0%`;
}

/** What the tier goes by now, in two words. */
export function ruleName(rule: RetentionView["rule"]): string {
  return rule === "worth" ? "by worth" : "by last use";
}

/** Why it goes by this rule, as the end of a sentence. */
export function ruleReason(rule: RetentionView["rule"], state: RetentionState): string {
  const found = `of what was asked for of late its shadow by last use found ${points(state.lru_hit_rate)}, the one by worth ${points(state.worth_hit_rate)}`;
  if (rule === "worth") return `it has seen ${plural(state.num_reuses, "chain")} come back, and ${found}`;
  if (state.num_reuses < state.num_to_learn) {
    return `it has seen ${plural(state.num_reuses, "chain")} come back, and trusts what it learned from ${state.num_to_learn} on`;
  }
  return `the guard is on: ${found}`;
}

const SWITCH_REASONS: Readonly<Record<RuleSwitch["reason"], string>> = {
  learned: "enough chains came back",
  guard_on: "the guard went on",
  guard_off: "the guard went off",
  reset: "the tier was emptied",
};

/** One change of rule in words. */
export function switchWords(change: Omit<RuleSwitch, "seq" | "step" | "wall_ns">): string {
  const found =
    change.lru_hit_rate === null
      ? ""
      : ` (shadow by last use ${points(change.lru_hit_rate)}, by worth ${points(change.worth_hit_rate)})`;
  return `${ruleName(change.from_rule)} → ${ruleName(change.to_rule)}: ${SWITCH_REASONS[change.reason]}${found}`;
}
