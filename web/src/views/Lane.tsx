// The block lane on screen: canvas, hover, keyboard, the pin. The picture is lib/lane's, the drawing draw/lane's.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ChainBlock, RequestDetail } from "../api/types";
import { drawLane, fitColumns, type Hit, hitTest, layoutOf } from "../draw/lane";
import { readInk } from "../draw/palette";
import { kindOf } from "../lib/events";
import { clock, count, duration, plural, shortHash, shortId } from "../lib/format";
import { buildLane, type Cell, columnOf, foldColumns, type Lane } from "../lib/lane";
import { isDark } from "../state/theme";

interface LaneProps {
  detail: RequestDetail;
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

  const lane = useMemo(() => buildLane(detail), [detail]);
  const gutter = width < 520 ? 62 : 138;
  const columns = useMemo(() => foldColumns(lane, fitColumns(width, gutter)), [lane, width, gutter]);
  const layout = layoutOf(lane, columns, width, gutter);
  const dark = isDark.value;
  const marked = hover ?? focus;
  useEffect(() => {
    if (canvas.current && width > 0) {
      drawLane(canvas.current, lane, columns, layout, readInk(dark), { focus: marked, pinned });
    }
  }, [lane, columns, width, dark, marked, pinned]);

  const at = (event: MouseEvent): Hit | null => {
    const place = canvas.current?.getBoundingClientRect();
    return place ? hitTest(layout, lane, columns, event.clientX - place.left, event.clientY - place.top) : null;
  };
  const pin = (hit: Hit | null) => {
    const first = hit && columns[hit.column]?.first;
    onPin(first === null || first === undefined || first === pinned ? null : first);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const lastRow = lane.rows.length - 1;
    const lastColumn = columns.length - 1;
    const start = { row: 0, column: pinned === null ? 0 : Math.max(0, columnOf(columns, pinned)) };
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
  const words = marked
    ? cellWords(detail, lane, columns[marked.column]?.first ?? 0, columns[marked.column]?.num ?? 1, marked.row)
    : null;
  return (
    <div class="lane">
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
            onFocus={() =>
              setFocus((hit) => hit ?? { row: 0, column: Math.max(0, pinned === null ? 0 : columnOf(columns, pinned)) })
            }
            onBlur={() => setFocus(null)}
            onKeyDown={onKeyDown}
          />
        )}
      </div>
      <p class="lane-readout" id="lane-readout" aria-live="polite">
        {words ?? (
          <span class="muted">Point at a block, or move over them with the arrow keys; a click or Enter pins one.</span>
        )}
      </p>
      <Legend lane={lane} />
    </div>
  );
}

/** The lookup in one sentence, for those who do not see the picture. */
export function laneWords(detail: RequestDetail, lane: Lane): string {
  const num = (source: ChainBlock["source"]) => detail.chain.filter((block) => block.source === source).length;
  if (num("pending") > 0) return `${plural(lane.numBlocks, "block")}, not looked up yet.`;
  const cut = lane.cut === null ? "nothing was missing" : `cut at block ${lane.cut}`;
  return `${plural(lane.numBlocks, "block")}: ${count(num("gpu"))} hit on the GPU, ${count(num("cpu"))} in the CPU tier, ${cut}.`;
}

const SOURCE_WORDS: Record<ChainBlock["source"], string> = {
  gpu: "hit on the GPU",
  cpu: "hit in the CPU tier",
  missing: "missing: here the lookup was cut",
  computed: "computed, behind the cut",
  pending: "not looked up yet",
};

/** What a cell says: which block, what was so or happened, when, and by whom. */
function cellWords(detail: RequestDetail, lane: Lane, first: number, num: number, rowIndex: number): string {
  const block = detail.chain[first];
  const row = lane.rows[rowIndex];
  const cell = row?.cells[first];
  if (!block || !row || !cell) return "";
  const name = num > 1 ? `blocks ${first}–${first + num - 1}, alike` : `block ${first}`;
  const parts = [name, shortHash(block.hash)];
  if (row.type === "lookup") {
    parts.push(
      cell.state === "beyond"
        ? "computed, though the CPU tier had it: it lay behind the cut"
        : SOURCE_WORDS[block.source],
    );
    if (cell.state === "cpu_restored") parts.push("there thanks to a re-store");
    if (block.why_missing) parts.push(block.why_missing);
  } else if (row.type === "then") {
    parts.push(`when it was looked up: ${tierWords(cell)}`);
  } else {
    parts.push(momentWords(cell) ?? tierWords(cell));
    if (row.step !== null) parts.push(`step ${count(row.step)}`);
    const lookupNs = lane.rows[0]?.type === "lookup" ? lane.rows[0].wallNs : null;
    if (row.wallNs !== null) {
      parts.push(clock(row.wallNs, true));
      if (lookupNs !== null && row.wallNs >= lookupNs)
        parts.push(`${duration(row.wallNs - lookupNs)} after the lookup`);
    }
  }
  return parts.join(" · ");
}

function tierWords(cell: Cell): string {
  if (cell.state === "in") return "in the CPU tier";
  if (cell.state === "in_restored") return "in the CPU tier, re-stored";
  return cell.state === "out" ? "not in the CPU tier, evicted" : "not in the CPU tier";
}

function momentWords({ moment }: Cell): string | null {
  if (!moment) return null;
  const what = kindOf(moment.kind).label;
  const by = moment.by_request_id ? ` by the store of ${shortId(moment.by_request_id)}` : "";
  const whose = moment.request_id && !by ? ` for ${shortId(moment.request_id)}` : "";
  return `${what}${by}${whose}`;
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

function Legend({ lane }: { lane: Lane }) {
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
      {lane.numHiddenMoments > 0 && (
        <span>the newest 300 moments; {plural(lane.numHiddenMoments, "older one")} left out</span>
      )}
    </p>
  );
}
