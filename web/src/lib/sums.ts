// Sums over the buckets of a timeline. Pure: types of the API only.
import type { Timeline, TimelinePoint, TokenSplit } from "../api/types";

/** The prompt tokens of a whole timeline by source. */
export function sumTokens(timeline: Timeline): TokenSplit {
  const sum = (value: (point: TimelinePoint) => number | null) =>
    timeline.points.reduce((total, point) => total + (value(point) ?? 0), 0);
  const gpu = sum((p) => p.gpu_hit_tokens);
  const cpu = sum((p) => p.cpu_hit_tokens);
  const prompt = sum((p) => p.prompt_tokens);
  return {
    prompt_tokens: prompt,
    gpu_hit_tokens: gpu,
    cpu_hit_tokens: cpu,
    restored_hit_tokens: sum((p) => p.restored_hit_tokens),
    computed_tokens: sum((p) => p.computed_tokens),
    hit_rate: prompt > 0 ? (gpu + cpu) / prompt : null,
  };
}

/** The four counts of blocks that have a strip of their own. */
export type BlockCount = "stored_blocks" | "restored_blocks" | "evicted_blocks" | "loaded_blocks";

export function sumBlocks(timeline: Timeline, count: BlockCount): number {
  return timeline.points.reduce((total, point) => total + point[count], 0);
}

/** The largest value over the buckets, at least `least`: the top of a strip. */
export function topOf<P>(points: readonly P[], value: (point: P) => number | null, least = 1): number {
  return points.reduce((top, point) => Math.max(top, value(point) ?? 0), least);
}

/** The stretches in which no engine wrote anything, in wall nanoseconds. */
export function gapsOf(timeline: Timeline): { fromNs: number; untilNs: number }[] {
  const gaps: { fromNs: number; untilNs: number }[] = [];
  for (const point of timeline.points) {
    if (point.engine_up) continue;
    const last = gaps.at(-1);
    if (last && last.untilNs === point.wall_ns) last.untilNs += timeline.bucket_ns;
    else gaps.push({ fromNs: point.wall_ns, untilNs: point.wall_ns + timeline.bucket_ns });
  }
  return gaps;
}
