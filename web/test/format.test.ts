import { describe, expect, test } from "vitest";
import { ago, bytes, count, duration, percent, share, shortId, span } from "../src/lib/format";

const plain = (text: string) => text.replace(/[\u202f\u00a0]/g, " ");

describe("format", () => {
  test("a number that does not exist is a dash, never a zero", () => {
    for (const text of [count(null), percent(null), bytes(undefined), duration(null), share(3, 0), share(null, 5)]) {
      expect(text).toBe("—");
    }
    expect(count(0)).toBe("0");
  });

  test("thousands are grouped", () => {
    expect(plain(count(1_234_567))).toBe("1 234 567");
    expect(count(999)).toBe("999");
    expect(plain(count(-1000))).toBe("−1 000");
  });

  test("a rate that is not nothing does not read as nothing, and not quite all does not read as all", () => {
    expect([0, 0.004, 0.624, 0.996, 1].map((rate) => plain(percent(rate)))).toEqual([
      "0 %",
      "< 1 %",
      "62 %",
      "> 99 %",
      "100 %",
    ]);
  });

  test("durations take the unit that suits them", () => {
    const cases: [number, string][] = [
      [340, "340 ns"],
      [340e3, "340 µs"],
      [31e6, "31 ms"],
      [3.14e9, "3.1 s"],
      [59.96e9, "1 m"],
      [720e9, "12 m"],
      [7500e9, "2 h 5 m"],
      [7200e9, "2 h"],
      [76 * 3600e9, "3 d 4 h"],
    ];
    for (const [ns, text] of cases) expect(plain(duration(ns))).toBe(text);
  });

  test("a clock that runs ahead of the browser's does not show a time to come", () => {
    expect(ago(2_000e9, 1_999_000)).toBe("now");
    expect(plain(ago(1_990e9, 2_000_000))).toBe("10 s ago");
    // A replay's clock runs ahead of the wall's; a few seconds are two clocks that differ.
    expect(ago(2_059e9, 2_000_000)).toBe("now");
    expect(plain(ago(2_180e9, 2_000_000))).toBe("in 3 m");
  });

  test("sizes count in powers of 1024", () => {
    expect([512, 1536, 377_487_360].map((n) => plain(bytes(n)))).toEqual(["512 B", "1.5 KiB", "360 MiB"]);
  });

  test("request ids lose the endpoint's prefix and runs of one block have no dash", () => {
    expect(shortId("chatcmpl-0123456789abcdef")).toBe("01234567");
    expect(shortId("warmup-1")).toBe("warmup-1");
    expect([span(4, 6), span(4, 1)]).toEqual(["[4–9]", "[4]"]);
  });
});
