// The time range that every chart and sum on a screen shares. Pure: imports nothing.
// A range is `15m`-like (the last while), `all` (the whole log) or `<since>-<until>` in milliseconds (a fixed piece of it).

export type Range =
  | { type: "last"; ms: number; text: string }
  | { type: "all"; text: "all" }
  | { type: "fixed"; sinceMs: number; untilMs: number; text: string };

export const DEFAULT_RANGE = "15m";
export const RANGES: readonly { text: string; label: string }[] = [
  { text: "5m", label: "last 5 m" },
  { text: "15m", label: "last 15 m" },
  { text: "1h", label: "last 1 h" },
  { text: "6h", label: "last 6 h" },
  { text: "24h", label: "last 24 h" },
  { text: "all", label: "whole log" },
];

const UNIT_MS: Record<string, number> = { s: 1e3, m: 60e3, h: 3600e3, d: 86_400e3 };

/** Reads a range; null for what is none. */
export function parseRange(text: string | undefined): Range | null {
  if (text === undefined) return null;
  if (text === "all") return { type: "all", text: "all" };
  const last = /^(\d{1,5})([smhd])$/.exec(text);
  if (last?.[1] && last[2]) {
    const ms = Number(last[1]) * (UNIT_MS[last[2]] ?? 0);
    return ms > 0 ? { type: "last", ms, text } : null;
  }
  const fixed = /^(\d{12,14})-(\d{12,14})$/.exec(text);
  if (fixed) {
    const sinceMs = Number(fixed[1]);
    const untilMs = Number(fixed[2]);
    return untilMs > sinceMs ? { type: "fixed", sinceMs, untilMs, text } : null;
  }
  return null;
}

export function fixedRange(sinceMs: number, untilMs: number): string {
  return `${Math.floor(sinceMs)}-${Math.ceil(untilMs)}`;
}

/**
 * The piece of wall time that a range means.
 *
 * @param endMs where the log ends: now while an engine writes it, its last sign of life otherwise
 * @param beginMs where the log begins, null while that is unknown
 */
export function resolveRange(
  range: Range,
  endMs: number,
  beginMs: number | null,
): { sinceMs: number; untilMs: number } {
  if (range.type === "fixed") return { sinceMs: range.sinceMs, untilMs: range.untilMs };
  if (range.type === "last") {
    // A log younger than the range is shown from its begin: what was before is no gap in it.
    const sinceMs = Math.max(endMs - range.ms, Math.min(beginMs ?? 0, endMs - Math.min(range.ms, 60e3)));
    return { sinceMs, untilMs: endMs };
  }
  return { sinceMs: Math.min(beginMs ?? endMs - 60e3, endMs - 1e3), untilMs: endMs };
}

const NICE_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

/** The width of a bucket in seconds, a round number, such that at most `maxBuckets` fill the range. */
export function bucketSeconds(rangeMs: number, maxBuckets: number): number {
  const least = rangeMs / 1e3 / Math.max(1, maxBuckets);
  return NICE_SECONDS.find((s) => s >= least) ?? Math.ceil(least / 86_400) * 86_400;
}
