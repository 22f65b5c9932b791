import { describe, expect, test } from "vitest";
import { logScale, spread, ticks } from "../src/draw/scale";

describe("scales", () => {
  test("ticks are round and reach the top", () => {
    expect(ticks(917, 3)).toEqual([0, 500, 1000]);
    expect(ticks(4, 4)).toEqual([0, 1, 2, 3, 4]);
    expect(ticks(0)).toEqual([0]);
  });

  test("doubling is the same distance everywhere on a logarithmic scale", () => {
    const x = logScale([1, 2, 4, 8], 300);
    expect([1, 2, 4, 8].map((value) => Math.round(x(value)))).toEqual([0, 100, 200, 300]);
    expect(logScale([3, 3], 300)(3)).toBe(150);
  });

  test("labels that would lie over each other move apart and stay inside", () => {
    const places = spread([50, 52, 51], 10, 0, 60);
    expect(places[0]).toBeLessThan(places[2] ?? 0);
    const sorted = [...places].sort((a, b) => a - b);
    for (const [i, place] of sorted.entries()) {
      expect(place).toBeGreaterThanOrEqual(0);
      expect(place).toBeLessThanOrEqual(60);
      if (i > 0) expect(place - (sorted[i - 1] ?? 0)).toBeGreaterThanOrEqual(10);
    }
  });
});
