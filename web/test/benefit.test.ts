import { describe, expect, test } from "vitest";
import type { Benefit } from "../src/api/types";
import { binWords, holdsWords, outcome, quantity, seconds, times, trimBins } from "../src/lib/benefit";

const plain = (text: string) => text.replace(/[\u202f\u00a0]/g, " ");

function account(restored: number, hits: number, saved: number | null, spent: number | null, displaced = 0): Benefit {
  return {
    num_lookups: 10,
    prompt_tokens: 1000,
    hit_rate: 0.5,
    regret: {
      evicted_blocks: 0,
      wanted_blocks: 0,
      wanted_owned_blocks: 0,
      wanted_share: null,
      lost_tokens: 0,
      histogram: [],
    },
    restore: {
      restored_blocks: restored,
      restored_bytes: restored * 1024,
      copy_ns: spent === null ? null : spent * 1e9,
      measured_blocks: restored,
      loaded_blocks: hits,
      hit_tokens: hits * 32,
      displaced_blocks: 0,
      displaced_wanted_blocks: 0,
    },
    prefill: { seconds_per_token: null, num_steps: 0, r_squared: null, doubt: null },
    saved_s: saved,
    spent_s: spent,
    displaced_s: displaced,
    roi: saved === null || !spent ? null : saved / spent,
  };
}

describe("the account of re-store", () => {
  test("gains where what it spared is more than its copies and what it pushed out", () => {
    expect(outcome(account(10, 5, 3, 1))).toBe("gained");
  });

  test("does harm where what it pushed out cost more than it gained", () => {
    expect(outcome(account(10, 5, 3, 1, 2.5))).toBe("lost");
  });

  test("tells nothing re-stored, nothing hit and nothing measured apart", () => {
    expect(outcome(account(0, 0, 0, null))).toBe("idle");
    expect(outcome(account(10, 0, 0, 1))).toBe("unhit");
    expect(outcome(account(10, 5, 3, null))).toBe("unmeasured");
  });

  test("is uncertain where prefill's speed is not known well enough, unless nothing was hit", () => {
    const doubtful = (of: Benefit): Benefit => ({ ...of, prefill: { ...of.prefill, doubt: "R² 0.04" } });
    expect(outcome(doubtful(account(10, 5, 300, 1)))).toBe("uncertain");
    expect(outcome(doubtful(account(0, 5, 3, null)))).toBe("uncertain");
    expect(outcome(doubtful(account(10, 0, 0, 1)))).toBe("unhit");
    expect(holdsWords({ holds: null, total: doubtful(account(10, 5, 300, 1)) })).toBe("cannot be told");
    expect(holdsWords({ holds: null, total: account(10, 5, 3, null) })).toBe("not measured");
    expect(holdsWords({ holds: false, total: account(10, 5, 3, 1) })).toBe("does not hold here");
  });

  test("hits of what was re-stored before the range count as a gain", () => {
    expect(outcome(account(0, 5, 3, null))).toBe("gained");
  });
});

describe("figures", () => {
  test("what is not known is a dash, never a zero", () => {
    expect(seconds(null)).toBe("—");
    expect(times(null)).toBe("—");
    expect(quantity(null, "B")).toBe("—");
    expect(plain(seconds(0))).toBe("0 s");
  });

  test("ratios have the digits that count", () => {
    expect([45.2, 9.94, 1, 0.33, 0, 0.001].map((value) => plain(times(value)))).toEqual([
      "45×",
      "9.9×",
      "1×",
      "0.33×",
      "0×",
      "< 0.01×",
    ]);
  });

  test("a quantity has the unit of what it is", () => {
    expect(plain(quantity(0.0005, "s"))).toBe("500 µs");
    expect(plain(quantity(2_000_000, "B"))).toBe("1.9 MiB");
    expect(quantity(50, "×")).toBe("50×");
  });

  test("classes of time read as one says them, and empty ends are left out", () => {
    const bins = [
      { from_ns: 0, to_ns: 1e9, num_blocks: 0 },
      { from_ns: 1e9, to_ns: 10e9, num_blocks: 3 },
      { from_ns: 10e9, to_ns: null, num_blocks: 0 },
    ];
    expect(trimBins(bins)).toEqual([bins[1]]);
    expect(trimBins([])).toEqual([]);
    expect(bins.map((bin) => plain(binWords(bin)))).toEqual(["within 1 s", "after 1 s to 10 s", "after 10 s or more"]);
  });
});
