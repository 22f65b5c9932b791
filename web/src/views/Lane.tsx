// The block lane on screen: canvas, hover, keyboard, the pin. The picture is lib/lane's, the drawing draw/lane's.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ChainBlock, RequestDetail } from "../api/types";
import { drawLane, fitColumns, type Hit, hitTest, layoutOf } from "../draw/lane";
import { readInk } from "../draw/palette";
import { kindOf } from "../lib/events";
import { clock, count, duration, plural, shortHash, shortId } from "../lib/format";
import {
  buildLane,
  type Column,
  columnOf,
  cropRows,
  foldColumns,
  type Lane,
  type LaneRow,
  lastChange,
  stateAt,
  type Touch,
  touchesAt,
} from "../lib/lane";
import { isDark } from "../state/theme";

/** Rows at first: what led to the lookup, and what followed. More are a click away. */
const FEW = { before: 8, after: 30 };

interface LaneProps {
  detail: RequestDetail;
  /** Index in its chain of the pinned block. */
  pinned: number | null;
  onPin: (index: number | null) => void;
}

export function LaneView({ detail, pinned, onPin }: LaneProps) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<Hit | null>(null);
  const [focus, setFocus] = useState<Hit | null>(null);
  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const [shown, setShown] = useState(FEW);
  const whole = useMemo(() => buildLane(detail), [detail]);
  const { lane, before, after } = useMemo(() => cropRows(whole, shown.before, shown.after), [whole, shown]);
  const pinnedPlace = pinned === null ? null : pinned - lane.firstIndex;
  const gutter = width < 520 ? 62 : 138;
  const columns = useMemo(() => foldColumns(lane, fitColumns(width, gutter)), [lane, width, gutter]);
  const layout = layoutOf(lane, columns, width, gutter);
  const dark = isDark.value;
  const marked = hover ?? focus;
  useEffect(() => {
    if (canvas.current && width > 0) {
      drawLane(canvas.current, lane, columns, layout, readInk(dark), { focus: marked, pinned: pinnedPlace });
    }
  }, [lane, columns, width, dark, marked, pinnedPlace]);

  const at = (event: MouseEvent): Hit | null => {
    const place = canvas.current?.getBoundingClientRect();
    return place ? hitTest(layout, lane, columns, event.clientX - place.left, event.clientY - place.top) : null;
  };
  const pin = (hit: Hit | null) => {
    const first = hit && columns[hit.column]?.first;
    onPin(first === null || first === undefined || first === pinnedPlace ? null : lane.firstIndex + first);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const lastRow = lane.rows.length - 1;
    const lastColumn = columns.length - 1;
    const start = startOf(lane, columns, pinnedPlace);
    const { row, column } = focus ?? start;
    const moves: Record<string, Hit> = {
      ArrowLeft: { row, column: Math.max(0, column - 1) },
      ArrowRight: { row, column: Math.min(lastColumn, column + 1) },
      ArrowUp: { row: Math.max(0, row - 1), column },
      ArrowDown: { row: Math.min(lastRow, row + 1), column },
      Home: { row, column: 0 },
      End: { row, column: lastColumn },
    };
    const next = moves[event.key];
    if (next) setFocus(focus === null ? start : next);
    else if (event.key === "Enter" || event.key === " ") pin(focus ?? start);
    else if (event.key === "Escape") onPin(null);
    else return;
    event.preventDefault();
  };
  const column = marked ? columns[marked.column] : undefined;
  const words = marked && column ? cellWords(detail, whole, column, before + marked.row) : null;
  return (
    <div class="lane">
      <MoreRows
        num={before}
        which="earlier"
        isCut={!detail.is_lane_complete}
        onMore={() => setShown({ ...shown, before: Number.POSITIVE_INFINITY })}
      />
      <div class="scroll lane-box" ref={box}>
        {width > 0 && (
          // biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: the arrow keys move over what is drawn
          <canvas
            ref={canvas}
            tabIndex={0}
            role="application"
            aria-roledescription="block lane"
            aria-label={`${laneWords(detail, lane)} Arrow keys move over the blocks, Enter pins one.`}
            aria-describedby="lane-readout"
            onMouseMove={(event) => setHover(at(event))}
            onMouseLeave={() => setHover(null)}
            onClick={(event) => pin(at(event))}
            onFocus={() => setFocus((hit) => hit ?? startOf(lane, columns, pinnedPlace))}
            onBlur={() => setFocus(null)}
            onKeyDown={onKeyDown}
          />
        )}
      </div>
      <MoreRows
        num={after}
        which="later"
        isCut={!detail.is_lane_complete}
        onMore={() => setShown({ ...shown, after: Number.POSITIVE_INFINITY })}
      />
      <p class="lane-readout" id="lane-readout" aria-live="polite">
        {words ?? (
          <span class="muted">Point at a block, or move over them with the arrow keys; a click or Enter pins one.</span>
        )}
      </p>
      <Legend />
    </div>
  );
}

/** Where the arrow keys begin: in the lookup's row. */
function startOf(lane: Lane, columns: readonly Column[], pinned: number | null): Hit {
  return { row: lane.lookupRow ?? 0, column: pinned === null ? 0 : Math.max(0, columnOf(columns, pinned)) };
}

/** Rows that are not shown yet. */
function MoreRows({ num, which, isCut, onMore }: MoreProps) {
  if (num === 0) return null;
  return (
    <p class="more-rows">
      <button type="button" onClick={onMore}>
        show {plural(num, `${which} moment`)}
      </button>
      {isCut && <span class="muted">; of this chain the page holds the 500 around the lookup</span>}
    </p>
  );
}

interface MoreProps {
  num: number;
  which: "earlier" | "later";
  isCut: boolean;
  onMore: () => void;
}

/** The lookup in one sentence, for those who do not see the picture. */
export function laneWords(detail: RequestDetail, lane: Lane): string {
  const num = (source: ChainBlock["source"]) => detail.chain.filter((block) => block.source === source).length;
  if (num("pending") > 0) return `${plural(lane.numBlocks, "block")}, not looked up yet.`;
  const cut = lane.cut === null ? "nothing was missing" : `cut at block ${lane.firstIndex + lane.cut}`;
  return `${plural(lane.numBlocks, "block")}: ${count(num("gpu"))} hit on the GPU, ${count(num("cpu"))} in the CPU tier, ${cut}.`;
}

const FOUND_WORDS: Partial<Record<ReturnType<typeof stateAt>, string>> = {
  gpu_hit: "hit on the GPU",
  cpu_hit: "hit in the CPU tier",
  restored_hit: "hit in the CPU tier, there thanks to a re-store",
  missing: "missing: here the lookup was cut",
  behind: "computed, though the CPU tier had it: it lay behind the cut",
  computed: "computed",
  later: "not of the prompt: it came later",
};

/** What a cell says: which block, what was so or happened, when, and by whom. `lane`: with all its rows. */
function cellWords(detail: RequestDetail, lane: Lane, column: Column, rowIndex: number): string {
  const { first, num } = column;
  const block = detail.chain[first];
  const row = lane.rows[rowIndex];
  if (!block || !row) return "";
  const name = num > 1 ? `blocks ${block.index}–${block.index + num - 1}, alike` : `block ${block.index}`;
  const parts = [name, shortHash(block.hash)];
  const touches = touchesAt(row, first);
  const change = lastChange(lane, rowIndex, first);
  if (row.type === "lookup") {
    parts.push(FOUND_WORDS[stateAt(row, first)] ?? "");
    if (block.why_missing) parts.push(change ? touchWords(change) : block.why_missing);
    else if (change && stateAt(row, first) !== "gpu_hit" && stateAt(row, first) !== "later") {
      parts.push(touchWords(change));
    }
  } else if (touches.length > 0) {
    parts.push(...touches.map(touchWords), ...whenWords(lane, row));
  } else {
    parts.push(tierWords(stateAt(row, first)));
    if (change) parts.push(touchWords(change));
  }
  return parts.join(" · ");
}

function tierWords(state: ReturnType<typeof stateAt>): string {
  if (state === "cached") return "in the CPU tier";
  return state === "restored" ? "in the CPU tier, re-stored" : "not in the CPU tier";
}

function whenWords(lane: Lane, row: LaneRow): string[] {
  if (row.wallNs === null) return [];
  const lookupNs = lane.lookupRow === null ? null : (lane.rows[lane.lookupRow]?.wallNs ?? null);
  if (lookupNs === null) return [clock(row.wallNs, true)];
  const after = row.wallNs - lookupNs;
  return [clock(row.wallNs, true), `${duration(Math.abs(after))} ${after < 0 ? "before" : "after"} the lookup`];
}

/** `evicted at step 18 190 by the store of 7f3a…`. */
function touchWords(touch: Touch): string {
  const group = touch.group ? ` in group ${touch.group}` : "";
  const what = `${kindOf(touch.kind).label}${group} at step ${count(touch.step)}`;
  if (touch.byRequestId) return `${what} by the store of ${shortId(touch.byRequestId)}`;
  return touch.requestId && touch.kind !== "blocks_evicted" ? `${what} for ${shortId(touch.requestId)}` : what;
}

const LEGEND: readonly { fill: string; mark: string; text: string }[] = [
  { fill: "gpu", mark: "G", text: "hit on GPU" },
  { fill: "cpu", mark: "C", text: "hit on CPU" },
  { fill: "lane-restored", mark: "R", text: "re-stored" },
  { fill: "missing", mark: "×", text: "missing" },
  { fill: "computed", mark: "", text: "computed" },
  { fill: "beyond", mark: "b", text: "usable behind the cut" },
  { fill: "missing", mark: "E", text: "evicted" },
  { fill: "cpu", mark: "S", text: "stored" },
  { fill: "cpu", mark: "L", text: "loaded" },
];

function Legend() {
  return (
    <p class="legend lane-legend">
      {LEGEND.map(({ fill, mark, text }) => (
        <span key={text}>
          <i class={`swatch fill-${fill}`} aria-hidden="true">
            {mark}
          </i>
          {text}
        </span>
      ))}
    </p>
  );
}
