import { describe, expect, test } from "vitest";
import type { PolicyMarker, Timeline, TimelinePoint } from "../src/api/types";
import { changeLines, policySpans, stackOf } from "../src/draw/strips";
import { gapsOf, sumBlocks, sumTokens } from "../src/lib/sums";
import recorded from "./fixtures/timeline.json";

const timeline = recorded as Timeline;

function marker(wall_ns: number, policy_version: number, label: string, reason = "toggle"): PolicyMarker {
  return { wall_ns, policy_version, label, reason, engine_id: 1, step: 1 };
}

function between(policy_at_start: string | null, ...policy_markers: PolicyMarker[]): Timeline {
  return { since_wall_ns: 0, until_wall_ns: 100, bucket_ns: 10, points: [], policy_markers, policy_at_start };
}

describe("the timeline", () => {
  test("sources add up to the prompt tokens, in every bucket and in sum", () => {
    for (const point of timeline.points) {
      const stack = stackOf(point);
      if (point.prompt_tokens === null) expect(stack).toBeNull();
      else expect(stack && stack.gpu + stack.cpu + stack.restored + stack.computed).toBe(point.prompt_tokens);
    }
    const sum = sumTokens(timeline);
    expect(sum.gpu_hit_tokens + sum.cpu_hit_tokens + sum.computed_tokens).toBe(sum.prompt_tokens);
    expect(sum.restored_hit_tokens).toBeLessThanOrEqual(sum.cpu_hit_tokens);
    expect(sumBlocks(timeline, "restored_blocks")).toBeGreaterThan(0);
  });

  test("no traffic has no hit rate", () => {
    expect(sumTokens({ ...timeline, points: [] }).hit_rate).toBeNull();
  });

  test("neighbouring buckets without an engine are one gap", () => {
    const at = (wall_ns: number, engine_up: boolean) => ({ wall_ns, engine_up }) as TimelinePoint;
    const points = [at(0, true), at(10, false), at(20, false), at(30, true), at(40, false)];
    expect(gapsOf({ ...between(null), points })).toEqual([
      { fromNs: 10, untilNs: 30 },
      { fromNs: 40, untilNs: 50 },
    ]);
  });

  test("each policy has one stretch, from when an engine obeyed it to the next change", () => {
    const spans = policySpans(between("off", marker(30, 2, "tracked"), marker(60, 3, "off")));
    expect(spans.map(({ fromNs, untilNs, label }) => [fromNs, untilNs, label])).toEqual([
      [0, 30, "off"],
      [30, 60, "tracked"],
      [60, 100, "off"],
    ]);
  });

  test("an engine's start under the policy that held already is no change", () => {
    const spans = policySpans(between("tracked", marker(40, 2, "tracked", "start")));
    expect(spans).toHaveLength(1);
  });

  test("changes have a line each while there are few, none where they would be a wall", () => {
    const every = (step: number, count: number) => Array.from({ length: count }, (_, i) => i * step);
    expect(changeLines(every(30, 20), 4)).toEqual(every(30, 20));
    expect(changeLines(every(30, 21), 4)).toEqual([]);
  });

  test("changes that are nearer than a few pixels share the first one's line", () => {
    expect(changeLines([50, 10, 12, 13, 14, 90], 4)).toEqual([10, 14, 50, 90]);
  });

  test("a new version that keeps the mode, as a new budget does, is a change", () => {
    const spans = policySpans(between(null, marker(10, 1, "tracked"), marker(50, 2, "tracked")));
    expect(spans.map(({ version }) => version)).toEqual([1, 2]);
  });
});
