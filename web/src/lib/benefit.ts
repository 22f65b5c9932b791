// Re-store's account in words and numbers for the screen. Pure: types and lib only.
import type { Assumption, Benefit, BenefitView, Bin } from "../api/types";
import { bytes, count, duration, NONE } from "./format";

const S = 1e9;

/** Seconds with the unit that suits them. */
export function seconds(value: number | null | undefined): string {
  if (value === 0) return "0\u00a0s";
  return value === null || value === undefined ? NONE : duration(value * S);
}

/** `45×`, `0.3×`. */
export function times(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0×";
  if (value < 0.01) return "<\u00a00.01×";
  return `${value >= 9.95 ? count(value) : value.toFixed(value < 1 ? 2 : 1).replace(/\.?0+$/, "")}×`;
}

/** Whether re-store gained: what one says before the numbers. `uncertain`: prefill's speed is not known well enough. */
export function outcome(benefit: Benefit): "gained" | "lost" | "idle" | "unhit" | "unmeasured" | "uncertain" {
  const { restore, saved_s: saved, spent_s: spent } = benefit;
  if (restore.hit_tokens === 0) return restore.restored_blocks === 0 ? "idle" : "unhit";
  if (benefit.prefill.doubt !== null) return "uncertain";
  if (restore.restored_blocks === 0) return "gained";
  if (saved === null || spent === null) return "unmeasured";
  return saved > spent + (benefit.displaced_s ?? 0) ? "gained" : "lost";
}

/** Whether the ratio that people quote holds here, as a tag. */
export function holdsWords({ holds, total }: Pick<BenefitView, "holds" | "total">): string {
  if (holds !== null) return holds ? "holds here" : "does not hold here";
  return outcome(total) === "uncertain" ? "cannot be told" : "not measured";
}

export function quantity(value: number | null, unit: Assumption["unit"]): string {
  if (value === null) return NONE;
  if (unit === "s") return seconds(value);
  return unit === "B" ? bytes(value) : times(value);
}

/** The edge of a class of times: `1 s`, `5 m`. */
export function edge(ns: number): string {
  return ns === 0 ? "0" : duration(ns);
}

/** `between 1 s and 3 s`, `after 1 h or more`. */
export function binWords({ from_ns, to_ns }: Bin): string {
  if (to_ns === null) return `after ${edge(from_ns)} or more`;
  return from_ns === 0 ? `within ${edge(to_ns)}` : `after ${edge(from_ns)} to ${edge(to_ns)}`;
}

/** Without the empty classes at both ends. */
export function trimBins(bins: readonly Bin[]): Bin[] {
  const first = bins.findIndex((bin) => bin.num_blocks > 0);
  const last = bins.findLastIndex((bin) => bin.num_blocks > 0);
  return first < 0 ? [] : bins.slice(first, last + 1);
}
