import { describe, expect, test } from "vitest";
import type { TierBlock } from "../src/api/types";
import { ageClass, arrange, gridOf, lookFor, moveIn, NUM_CONVERSATION_COLORS, owners } from "../src/lib/tiermap";
import { mapWords } from "../src/views/BlockGrid";

function block(id: number, changes: Partial<TierBlock> = {}): TierBlock {
  return {
    id,
    state: "cached",
    hash: "ab".repeat(32),
    kv_group: 0,
    index: id,
    request_id: "r",
    conversation_id: "c",
    is_restored: false,
    stored_wall_ns: 0,
    age_ns: 5e9,
    num_hits: 0,
    eviction_rank: null,
    ...changes,
  };
}

describe("the map of the tier", () => {
  test("in the order of eviction free blocks come first and what cannot go last", () => {
    const blocks = [
      block(0, { eviction_rank: 1 }),
      block(1, { state: "pinned" }),
      block(2, { eviction_rank: 0 }),
      block(3, { state: "free" }),
    ];
    expect(arrange(blocks, "eviction").map(({ id }) => id)).toEqual([3, 2, 0, 1]);
    expect(arrange(blocks, "id").map(({ id }) => id)).toEqual([0, 1, 2, 3]);
  });

  test("conversations have letters by the blocks that they hold, and colours while there are some", () => {
    const blocks = [..."aaabb"].map((id, i) => block(i, { conversation_id: id }));
    const all = owners(blocks);
    expect(all.map(({ id, letter, blocks: num }) => [id, letter, num])).toEqual([
      ["a", "A", 3],
      ["b", "B", 2],
    ]);
    const look = lookFor("conversation", all);
    expect(look(block(0, { conversation_id: "b" }))).toEqual({ role: "conv1", letter: "B" });
    expect(look(block(0, { conversation_id: null })).role).toBe("other");
    const many = Array.from({ length: 30 }, (_, i) => block(i, { conversation_id: `c${String(i).padStart(2, "0")}` }));
    const last = lookFor("conversation", owners(many))(many[NUM_CONVERSATION_COLORS] ?? block(0));
    expect(last).toEqual({ role: "other", letter: "I" });
  });

  test("what is pinned, in flight, free or unknown looks so whatever the colours tell", () => {
    for (const paint of ["state", "age", "conversation"] as const) {
      const look = lookFor(paint, []);
      expect(look(block(0, { state: "pinned" }))).toEqual({ role: "pinned", letter: "↑" });
      expect(look(block(0, { state: "in_flight" })).role).toBe("in_flight");
      expect(look(block(0, { state: "unknown" })).letter).toBe("?");
    }
  });

  test("ages fall into classes that a digit names", () => {
    expect([0, 1e9 - 1, 1e9, 60e9, 599e9, 1e13].map(ageClass)).toEqual([0, 0, 1, 3, 3, 4]);
    expect(lookFor("age", [])(block(0, { age_ns: 5e9 })).letter).toBe("2");
  });

  test("a re-stored block has its letter", () => {
    expect(lookFor("state", [])(block(0, { is_restored: true }))).toEqual({ role: "restored", letter: "R" });
  });

  test("cells shrink with the tier, and the grid holds every block", () => {
    for (const num of [1, 96, 1000, 4096]) {
      const { columns, rows, cell } = gridOf(num, 1000);
      expect(columns * rows).toBeGreaterThanOrEqual(num);
      expect(columns * cell).toBeLessThanOrEqual(1000);
    }
    expect(gridOf(96, 1000).cell).toBeGreaterThan(gridOf(4096, 1000).cell);
  });

  test("arrow keys move in the grid and stop at its edge", () => {
    expect(moveIn("ArrowDown", 3, 10, 25)).toBe(13);
    expect(moveIn("ArrowDown", 18, 10, 25)).toBe(18);
    expect(moveIn("ArrowLeft", 0, 10, 25)).toBe(0);
    expect(moveIn("End", 0, 10, 25)).toBe(24);
    expect(moveIn("a", 0, 10, 25)).toBeNull();
  });

  test("is told in words", () => {
    const words = mapWords([block(0), block(1, { state: "free" }), block(2, { state: "pinned" })]);
    expect(words.replace(/[\u202f\u00a0]/g, " ")).toBe("3 blocks: 1 cached, 1 free, 1 pinned.");
  });
});
