import { describe, expect, test } from "vitest";
import { bucketSeconds, fixedRange, parseRange, resolveRange } from "../src/lib/range";
import { mergeBySeq } from "../src/lib/ring";
import { formatRoute, listOf, parseRoute } from "../src/lib/route";

describe("addresses", () => {
  test("what is written is read back", () => {
    const id = "chatcmpl-a/b?c#d é";
    const hash = formatRoute("request", id, { block: "3", range: "1h", kind: null });
    expect(parseRoute(hash)).toEqual({ view: "request", id, params: { block: "3", range: "1h" } });
  });

  test("each kind of thing has its own list in the address", () => {
    for (const view of ["request", "conversation"] as const) {
      expect(parseRoute(formatRoute(view, "a/b", {}))).toEqual({ view, id: "a/b", params: {} });
      expect(parseRoute(formatRoute(listOf(view), null, {}))).toEqual({ view: `${view}s`, id: null, params: {} });
    }
    for (const view of ["misses", "benefit", "whatif", "tier"] as const) {
      expect(parseRoute(formatRoute(view, null, { cause: "evicted" }))).toMatchObject({ view, id: null });
      expect(listOf(view)).toBe(view);
    }
  });

  test("the same state has one address", () => {
    expect(formatRoute("now", null, { kind: "fault", range: "5m", find: "" })).toBe("#/?kind=fault&range=5m");
    expect(formatRoute("now", null, { range: "5m", kind: "fault" })).toBe("#/?kind=fault&range=5m");
  });

  test("nonsense leads to the first screen", () => {
    for (const hash of ["", "#", "#/", "#/nowhere", "#/requests%2"]) expect(parseRoute(hash).view).toBe("now");
    expect(parseRoute("#/requests").view).toBe("requests");
    expect(parseRoute("#/requests/%E0%A4%A").id).toBe("%E0%A4%A");
  });
});

describe("ranges", () => {
  test("texts that are no range are refused", () => {
    for (const text of ["", "0m", "m", "-5m", "2000000000000-1000000000000", "12-13"])
      expect(parseRange(text)).toBeNull();
  });

  test("the last while ends where the log ends", () => {
    const range = parseRange("15m");
    expect(range && resolveRange(range, 2_000_000, null)).toEqual({ sinceMs: 1_100_000, untilMs: 2_000_000 });
  });

  test("a log younger than the range is shown from its begin, a minute at least", () => {
    const range = parseRange("15m");
    expect(range && resolveRange(range, 2_000_000, 1_800_000).sinceMs).toBe(1_800_000);
    expect(range && resolveRange(range, 2_000_000, 1_999_000).sinceMs).toBe(1_940_000);
  });

  test("a piece of time is kept to the millisecond", () => {
    const range = parseRange(fixedRange(1_796_000_000_000.4, 1_796_000_060_000.2));
    expect(range && resolveRange(range, 1, 1)).toEqual({ sinceMs: 1_796_000_000_000, untilMs: 1_796_000_060_001 });
  });

  test("the whole log reaches from its begin to its end", () => {
    const range = parseRange("all");
    expect(range && resolveRange(range, 9_000, 5_000)).toEqual({ sinceMs: 5_000, untilMs: 9_000 });
  });

  test("buckets are round and never more than there is room for", () => {
    expect(bucketSeconds(15 * 60e3, 180)).toBe(5);
    expect(bucketSeconds(3600e3, 120)).toBe(30);
    for (const minutes of [1, 7, 90, 1441, 100_000, 5_000_000]) {
      expect((minutes * 60) / bucketSeconds(minutes * 60e3, 120)).toBeLessThanOrEqual(120);
    }
  });
});

describe("the newest events", () => {
  const rows = (...seqs: number[]) => seqs.map((seq) => ({ seq }));

  test("each stands once, in the log's order, whatever came twice", () => {
    expect(mergeBySeq(rows(1, 2, 4), rows(2, 3, 5), 10)).toEqual(rows(1, 2, 3, 4, 5));
  });

  test("the oldest fall off", () => {
    expect(mergeBySeq(rows(1, 2, 3), rows(4, 5), 3)).toEqual(rows(3, 4, 5));
  });
});
