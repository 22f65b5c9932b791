// Shapes the shadows' curve for the screen, and reads what the form of the what-if asks for. Pure: types and lib only.
import type { CurveRow } from "../api/types";
import { bytes, percent, plural } from "./format";
import { type LineStyle, lineStyle } from "./shadows";

export const POLICIES = ["off", "tracked", "adaptive", "adaptive-off", "unlimited"] as const;
export const DEFAULT_POLICIES = "off,tracked,adaptive,unlimited";
const GIB = 1024 ** 3;

/** A line a policy, its points by size. What has no size of its own is drawn level over all sizes. */
export function curveLines(rows: readonly CurveRow[]): {
  name: string;
  style: LineStyle;
  points: { x: number; y: number | null; words: string }[];
}[] {
  const sizes = [...new Set(rows.flatMap(({ cpu_bytes }) => (cpu_bytes ? [cpu_bytes] : [])))].sort((a, b) => a - b);
  const policies = [...new Set(rows.map(({ policy }) => policy))].sort(
    (a, b) => POLICIES.indexOf(a as never) - POLICIES.indexOf(b as never),
  );
  return policies.map((policy) => {
    const own = rows.filter((row) => row.policy === policy);
    const level = own.find(({ cpu_bytes }) => !cpu_bytes);
    const points = level
      ? sizes.map((x) => ({ x, y: level.hit_rate, words: `${policy}: ${percent(level.hit_rate)} hit` }))
      : own
          .map(({ cpu_bytes, hit_rate }) => ({
            x: cpu_bytes ?? 0,
            y: hit_rate,
            words: `${policy}, ${bytes(cpu_bytes)}: ${percent(hit_rate)} hit`,
          }))
          .sort((a, b) => a.x - b.x);
    return { name: policy, style: lineStyle(policy), points };
  });
}

/** Sizes in GiB as the form takes them: `1, 2, 0.5`. Null where one of them is no size. */
export function readSizes(text: string): string | null {
  const parts = text
    .split(/[\s,;]+/)
    .map((part) => part.trim())
    .filter((part) => part !== "");
  const isGood = parts.every((part) => /^\d*\.?\d+$/.test(part) && Number(part) > 0);
  return isGood ? parts.join(",") : null;
}

/** Sizes to begin with: a quarter to four times of the tier as it is. */
export function usualSizes(cpuBytes: number): string {
  return [0.25, 0.5, 1, 2, 4].map((factor) => trim((cpuBytes * factor) / GIB)).join(",");
}

function trim(gib: number): string {
  return String(Number(gib.toPrecision(3)));
}

/**
 * The smallest size from which on a policy is within `slack` of the best that any size gives; null where that is the
 * largest size that was tried, since a larger one may give more.
 */
export function kneeOf(rows: readonly CurveRow[], policy: string, slack = 0.01): CurveRow | null {
  const own = rows
    .filter((row) => row.policy === policy && row.cpu_bytes && row.hit_rate !== null)
    .sort((a, b) => (a.cpu_bytes ?? 0) - (b.cpu_bytes ?? 0));
  const best = Math.max(...own.map((row) => row.hit_rate ?? 0));
  const knee = own.find((row) => (row.hit_rate ?? 0) >= best - slack) ?? null;
  return knee === own.at(-1) ? null : knee;
}

/** A difference of two rates in percentage points: `+3.2 pp`. */
export function points(a: number | null | undefined, b: number | null | undefined): string {
  if (a === null || a === undefined || b === null || b === undefined) return "—";
  const difference = Math.round((a - b) * 1000) / 10;
  return `${difference > 0 ? "+" : difference < 0 ? "−" : "±"}${Math.abs(difference).toFixed(1)}\u00a0pp`;
}

export function sizeWords(row: Pick<CurveRow, "cpu_blocks" | "cpu_bytes">): string {
  if (row.cpu_blocks === null) return "no bound";
  return row.cpu_bytes === null
    ? plural(row.cpu_blocks, "block")
    : `${bytes(row.cpu_bytes)}, ${plural(row.cpu_blocks, "block")}`;
}
