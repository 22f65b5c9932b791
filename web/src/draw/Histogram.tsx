// Bars of counts over unequal classes, as SVG. Each bar can be pointed at and read out.
import { ticks } from "./scale";

export interface Bar {
  /** What stands under the bar's left edge. */
  from: string;
  value: number;
  /** Of the value, drawn hatched. */
  part?: number;
  words: string;
}

interface HistogramProps {
  bars: readonly Bar[];
  /** What stands under the last bar's right edge. */
  end: string;
  width: number;
  height: number;
  label: string;
  tone: "lost" | "cpu" | "restored";
  valueLabel: (value: number) => string;
}

const PAD = { left: 52, right: 28, top: 8, bottom: 24 };

export function Histogram({ bars, end, width, height, label, tone, valueLabel }: HistogramProps) {
  if (width < 120 || bars.length === 0) return null;
  const innerWidth = width - PAD.left - PAD.right;
  const innerHeight = height - PAD.top - PAD.bottom;
  const scale = ticks(Math.max(1, ...bars.map((bar) => bar.value)), 3);
  const top = scale.at(-1) || 1;
  const y = (value: number) => PAD.top + (1 - value / top) * innerHeight;
  const step = innerWidth / bars.length;
  const edges = [...bars.map((bar) => bar.from), end];
  const every = Math.ceil(62 / step);
  return (
    // biome-ignore lint/a11y/useSemanticElements: no other element groups the parts of a drawing
    <svg class={`histogram tone-svg-${tone}`} width={width} height={height} role="group" aria-label={label}>
      <defs>
        <pattern
          id={`stripes-${tone}`}
          width="6"
          height="6"
          patternUnits="userSpaceOnUse"
          patternTransform="rotate(45)"
        >
          <rect width="2" height="6" class="stripe" />
        </pattern>
      </defs>
      {scale.map((value) => (
        <g key={value}>
          <line class="grid" x1={PAD.left} x2={PAD.left + innerWidth} y1={y(value)} y2={y(value)} />
          <text class="tick" x={PAD.left - 8} y={y(value)} text-anchor="end" dominant-baseline="central">
            {valueLabel(value)}
          </text>
        </g>
      ))}
      {bars.map((bar, i) => {
        const left = PAD.left + i * step;
        const height = Math.max(bar.value > 0 ? 2 : 0, PAD.top + innerHeight - y(bar.value));
        const part = bar.value > 0 ? (height * (bar.part ?? 0)) / bar.value : 0;
        const floor = PAD.top + innerHeight;
        return (
          // biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: its words are read out bar by bar
          <g key={bar.from} class="bar-of" tabindex={0} role="img" aria-label={bar.words}>
            <title>{bar.words}</title>
            <rect class="catch" x={left} y={PAD.top} width={step} height={innerHeight} />
            <rect class="body" x={left + 1} y={floor - height} width={Math.max(1, step - 2)} height={height} />
            {part > 0 && (
              <rect
                fill={`url(#stripes-${tone})`}
                x={left + 1}
                y={floor - part}
                width={Math.max(1, step - 2)}
                height={part}
              />
            )}
          </g>
        );
      })}
      {edges.map(
        (edge, i) =>
          i % every === 0 && (
            <text key={edge} class="tick" x={PAD.left + i * step} y={height - 6} text-anchor="middle">
              {edge}
            </text>
          ),
      )}
    </svg>
  );
}
