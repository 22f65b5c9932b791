import { describe, expect, test } from "vitest";
import type { EventRow } from "../src/api/types";
import { KINDS, kindOf, matches, touchesBlock, describe as words } from "../src/lib/events";
import recorded from "./fixtures/events.json";

const events = recorded as unknown as EventRow[];
const event = (kind: string, data: EventRow["data"]): EventRow => ({
  seq: 1,
  engine_id: 1,
  step: 5,
  wall_ns: 0,
  monotonic_ns: 0,
  kind,
  request_id: "chatcmpl-aaaaaaaa-1",
  data,
});
const plain = (text: string) => text.replace(/[\u202f\u00a0]/g, " ");

describe("events", () => {
  test("every recorded kind has a name and words", () => {
    for (const row of events) {
      expect(Object.keys(KINDS)).toContain(row.kind);
      expect(words(row)).not.toBe("");
      expect(words(row)).not.toContain("undefined");
    }
  });

  test("a kind that is not known yet is shown under its own name", () => {
    expect(kindOf("block_moved").label).toBe("block moved");
    expect(words(event("block_moved", {}))).toBe("");
  });

  test("a lookup adds up and names its cut", () => {
    const data = { num_tokens: 100, gpu_hit_tokens: 32, cpu_hit_tokens: 32, cut_index: 2, missing_hash: "abcdef0123" };
    expect(plain(words(event("lookup", data)))).toBe(
      "100 = 32 GPU + 32 CPU + 36 computed · cut at 2, missing abcdef01",
    );
  });

  test("an eviction names the blocks, the other party and the age", () => {
    const data = {
      kv_group: 0,
      first_index: 4,
      num_blocks: 3,
      by_request_id: "chatcmpl-bbbbbbbb-1",
      num_owned: 3,
      age_ns: 3.1e9,
    };
    expect(plain(words(event("blocks_evicted", data)))).toBe(
      "g0 [4–6] · by bbbbbbbb-1 · of a running request · 3.1 s after its store",
    );
  });

  test("what was chosen or refused by worth says both scores, and by last use none", () => {
    const run = { kv_group: 0, first_index: 4, num_blocks: 1 };
    const evicted = { ...run, num_owned: 0, age_ns: null, victim_worth: 0.125, incoming_worth: 0.75 };
    expect(plain(words(event("blocks_evicted", evicted)))).toBe("g0 [4] · worth 12.5 %, what came in 75.0 %");
    const refused = { ...run, reason: "worth", is_restore: true, victim_worth: 0.5, incoming_worth: 0.25 };
    expect(plain(words(event("stores_refused", refused)))).toBe(
      "g0 [4] · a re-store · nothing in the tier is worth so much less · worth 25.0 %, the least in the tier 50.0 %",
    );
    const full = { ...run, reason: "no_victim", is_restore: false, victim_worth: null, incoming_worth: null };
    expect(plain(words(event("stores_refused", full)))).toBe("g0 [4] · nothing in the tier can leave");
  });

  test("a change of rule says from which to which, why, and what both shadows had found", () => {
    const change = { from_rule: "worth", to_rule: "lru", reason: "guard_on", num_reuses: 9 };
    const found = { lru_hit_blocks: 40, worth_hit_blocks: 30, asked_blocks: 80 };
    expect(plain(words(event("rule_switched", { ...change, ...found })))).toBe(
      "by worth → by last use: the guard went on (shadow by last use 50.0 %, by worth 37.5 %)",
    );
    expect(kindOf("rule_switched").label).toBe("rule switched");
    expect(kindOf("stores_refused").label).toBe("refused");
  });

  test("a run touches its own blocks only", () => {
    const run = event("blocks_stored", { kv_group: 0, first_index: 4, num_blocks: 3 });
    expect([3, 4, 6, 7].map((index) => touchesBlock(run, index))).toEqual([false, true, true, false]);
  });

  test("the search finds either party and hashes, in any case, within the chosen kinds", () => {
    const row = event("blocks_evicted", { by_request_id: "other-1", tail_hash: "abcdef" });
    for (const find of ["AAAA", "other", "cdef", ""]) expect(matches(row, null, find)).toBe(true);
    expect(matches(row, null, "zzz")).toBe(false);
    expect(matches(row, new Set(["fault"]), "")).toBe(false);
  });
});
