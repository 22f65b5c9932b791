// Hit rate over the size of the CPU tier, a line a policy, as SVG: few points, so the browser draws it once.
// Lines are told apart by dash, by the shape of their points and by the name at their end, not by colour alone.
import type { LineStyle } from "../lib/shadows";
import { logScale, spread } from "./scale";

export interface CurvePoint {
  /** Greater than 0; the axis is logarithmic. */
  x: number;
  /** 0 to 1; null breaks the line. */
  y: number | null;
  /** Shown when the point is pointed at, and read out. */
  words: string;
  href?: string | undefined;
}

export interface CurveLine {
  name: string;
  style: LineStyle;
  points: readonly CurvePoint[];
}

interface CurveProps {
  lines: readonly CurveLine[];
  width: number;
  height: number;
  label: string;
  xLabel: (x: number) => string;
  /** A size that is marked by a line: the tier as it is. */
  here?: { x: number; words: string } | undefined;
}

const PAD = { left: 54, right: 96, top: 18, bottom: 26 };

export function Curve({ lines, width, height, label, xLabel, here }: CurveProps) {
  const xs = [...new Set([...lines.flatMap((line) => line.points.map((p) => p.x)), ...(here ? [here.x] : [])])].sort(
    (a, b) => a - b,
  );
  if (xs.length === 0 || width < 120) return null;
  const innerWidth = width - PAD.left - PAD.right;
  const innerHeight = height - PAD.top - PAD.bottom;
  const toX = logScale(xs, innerWidth);
  const x = (value: number) => PAD.left + toX(value);
  const y = (value: number) => PAD.top + (1 - value) * innerHeight;
  const ends = lines.map((line) => line.points.findLast((point) => point.y !== null));
  const labels = spread(
    ends.map((point) => y(point?.y ?? 0)),
    17,
    PAD.top,
    PAD.top + innerHeight,
  );
  return (
    // biome-ignore lint/a11y/useSemanticElements: no other element groups the parts of a drawing
    <svg class="curve" width={width} height={height} role="group" aria-label={label}>
      {[0, 0.25, 0.5, 0.75, 1].map((rate) => (
        <g key={rate}>
          <line class="grid" x1={PAD.left} x2={PAD.left + innerWidth} y1={y(rate)} y2={y(rate)} />
          <text class="tick" x={PAD.left - 8} y={y(rate)} text-anchor="end" dominant-baseline="central">
            {`${Math.round(rate * 100)} %`}
          </text>
        </g>
      ))}
      {thin(xs, x, 58).map((size) => (
        <text key={size} class="tick" x={x(size)} y={height - 8} text-anchor="middle">
          {xLabel(size)}
        </text>
      ))}
      {here && (
        <g>
          <line class="here" x1={x(here.x)} x2={x(here.x)} y1={PAD.top - 4} y2={PAD.top + innerHeight} />
          <text class="tick" x={x(here.x)} y={PAD.top - 8} text-anchor="middle">
            {here.words}
          </text>
        </g>
      )}
      {lines.map((line, i) => {
        const end = ends[i];
        return (
          <g key={line.name} class={`line line-${line.style}`}>
            <path d={pathOf(line.points, x, y)} />
            {line.points.map(
              (point) =>
                point.y !== null && (
                  <Dot key={point.x} point={point} style={line.style} at={[x(point.x), y(point.y)]} />
                ),
            )}
            {end && (
              <text x={PAD.left + innerWidth + 12} y={labels[i]} dominant-baseline="central">
                {line.name}
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
}

/** Those of the sorted values whose places are at least `gap` apart, the last always among them. */
function thin(values: readonly number[], place: (value: number) => number, gap: number): number[] {
  const kept: number[] = [];
  for (const value of [...values].reverse()) {
    const last = kept.at(-1);
    if (last === undefined || place(last) - place(value) >= gap) kept.push(value);
  }
  return kept.reverse();
}

function pathOf(points: readonly CurvePoint[], x: (v: number) => number, y: (v: number) => number): string {
  let isDown = false;
  return points
    .map((point) => {
      if (point.y === null) {
        isDown = false;
        return "";
      }
      const command = isDown ? "L" : "M";
      isDown = true;
      return `${command}${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`;
    })
    .join("");
}

function Dot({ point, style, at: [x, y] }: { point: CurvePoint; style: LineStyle; at: [number, number] }) {
  const shape = <path d={SHAPES[style](x, y)} />;
  return (
    // biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: its words are read out point by point
    <g class="dot" tabindex={0} role="img" aria-label={point.words}>
      <title>{point.words}</title>
      {shape}
    </g>
  );
}

const SHAPES: Readonly<Record<LineStyle, (x: number, y: number) => string>> = {
  off: (x, y) => `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0`,
  tracked: (x, y) => `M${x - 4} ${y - 4}h8v8h-8z`,
  rescan: (x, y) => `M${x} ${y - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z`,
  adaptive: (x, y) => `M${x} ${y - 5}l5 4l-2 6h-6l-2 -6z`,
  "adaptive-off": (x, y) => `M${x - 5} ${y}l2.5 -4.5h5l2.5 4.5l-2.5 4.5h-5z`,
  unlimited: (x, y) => `M${x} ${y - 5}l5 9h-10z`,
  heads: (x, y) => `M${x} ${y + 5}l5 -9h-10z`,
  truth: (x, y) => `M${x - 5} ${y - 5}l10 10m0 -10l-10 10`,
};
