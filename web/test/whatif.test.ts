import { describe, expect, test } from "vitest";
import type { CurveRow } from "../src/api/types";
import { curveLines, kneeOf, points, readSizes, sizeWords, usualSizes } from "../src/lib/whatif";

const GIB = 1024 ** 3;
const row = (policy: string, gib: number | null, hit_rate: number | null): CurveRow => ({
  policy,
  cpu_blocks: gib === null ? null : gib * 100,
  cpu_bytes: gib === null ? null : gib * GIB,
  hit_rate,
});

describe("the curve", () => {
  test("has a line a policy, its points by size", () => {
    const lines = curveLines([row("tracked", 2, 0.6), row("off", 1, 0.3), row("tracked", 1, 0.5)]);
    expect(lines.map(({ name, points: all }) => [name, all.map(({ y }) => y)])).toEqual([
      ["off", [0.3]],
      ["tracked", [0.5, 0.6]],
    ]);
  });

  test("what has no size is level over all sizes", () => {
    const lines = curveLines([row("off", 1, 0.3), row("off", 4, 0.5), row("unlimited", null, 0.9)]);
    expect(lines.at(-1)?.points.map(({ x, y }) => [x / GIB, y])).toEqual([
      [1, 0.9],
      [4, 0.9],
    ]);
  });

  test("the knee is where more hardly helps", () => {
    const rows = [row("tracked", 4, 0.802), row("tracked", 1, 0.5), row("tracked", 2, 0.795), row("off", 1, 0.1)];
    expect(kneeOf(rows, "tracked")?.cpu_bytes).toBe(2 * GIB);
    expect(kneeOf(rows, "rescan")).toBeNull();
  });

  test("there is no knee where the largest size that was tried still gives more", () => {
    expect(kneeOf([row("tracked", 1, 0.5), row("tracked", 2, 0.8)], "tracked")).toBeNull();
  });

  test("differences are percentage points with their sign", () => {
    expect(points(0.45, 0.42).replace("\u00a0", " ")).toBe("+3.0 pp");
    expect(points(0.3, 0.42).replace("\u00a0", " ")).toBe("−12.0 pp");
    expect(points(0.42, 0.42).replace("\u00a0", " ")).toBe("±0.0 pp");
    expect(points(null, 0.42)).toBe("—");
  });
});

describe("sizes", () => {
  test("are read as people write them, and refused where one is none", () => {
    expect(readSizes("1, 2;0.5  .25")).toBe("1,2,0.5,.25");
    for (const text of ["1, -2", "0", "NaN", "1e9", "1 GiB"]) expect(readSizes(text)).toBeNull();
    expect(readSizes("")).toBe("");
  });

  test("to begin with are a quarter to four times of the tier", () => {
    expect(usualSizes(2 * GIB)).toBe("0.5,1,2,4,8");
  });

  test("without a bound say so", () => {
    expect(sizeWords({ cpu_blocks: null, cpu_bytes: null })).toBe("no bound");
  });
});
