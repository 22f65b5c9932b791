// The grid of the tier's blocks on screen: canvas, hover, keyboard, the pin, the legend.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { TierBlock } from "../api/types";
import { readInk } from "../draw/palette";
import { drawMap, fillOf } from "../draw/tiermap";
import { count, duration, plural, shortHash, shortId } from "../lib/format";
import {
  AGE_EDGES_NS,
  type CellLook,
  gridOf,
  lookFor,
  moveIn,
  NUM_CONVERSATION_COLORS,
  type Owner,
  owners,
  type Paint,
} from "../lib/tiermap";
import { href } from "../state/location";
import { isDark } from "../state/theme";
import { useWidth } from "./charts";

interface GridProps {
  blocks: readonly TierBlock[];
  paint: Paint;
  pinned: number | null;
  onPin: (at: number | null) => void;
}

export function BlockGrid({ blocks, paint, pinned, onPin }: GridProps) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<number | null>(null);
  const [focus, setFocus] = useState<number | null>(null);
  const all = useMemo(() => owners(blocks), [blocks]);
  const looks = useMemo(() => blocks.map(lookFor(paint, all)), [blocks, paint, all]);
  const grid = gridOf(blocks.length, Math.max(0, width - 4));
  const dark = isDark.value;
  const marked = hover ?? focus;
  useEffect(() => {
    if (!canvas.current || width === 0) return;
    const frame = requestAnimationFrame(() => {
      if (canvas.current) drawMap(canvas.current, looks, grid, readInk(dark), { focus: marked, pinned });
    });
    return () => cancelAnimationFrame(frame);
  }, [looks, width, dark, marked, pinned]);

  const at = (event: MouseEvent): number | null => {
    const place = canvas.current?.getBoundingClientRect();
    if (!place) return null;
    const column = Math.floor((event.clientX - place.left - 2) / grid.cell);
    const index = Math.floor((event.clientY - place.top - 2) / grid.cell) * grid.columns + column;
    return column < 0 || column >= grid.columns || index < 0 || index >= blocks.length ? null : index;
  };
  const pin = (index: number | null) => onPin(index === pinned ? null : index);
  const onKeyDown = (event: KeyboardEvent) => {
    const here = focus ?? pinned ?? 0;
    const next = moveIn(event.key, here, grid.columns, blocks.length);
    if (next !== null) setFocus(focus === null ? here : next);
    else if (event.key === "Enter" || event.key === " ") pin(here);
    else if (event.key === "Escape") onPin(null);
    else return;
    event.preventDefault();
  };
  const block = marked === null ? null : blocks[marked];
  return (
    <div class="grid-of-blocks">
      <div ref={box}>
        {width > 0 && (
          // biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: the arrow keys move over what is drawn
          <canvas
            ref={canvas}
            tabIndex={0}
            role="application"
            aria-roledescription="map of blocks"
            aria-label={`${mapWords(blocks)} Arrow keys move over the blocks, Enter pins one.`}
            aria-describedby="grid-readout"
            onMouseMove={(event) => setHover(at(event))}
            onMouseLeave={() => setHover(null)}
            onClick={(event) => pin(at(event))}
            onFocus={() => setFocus((index) => index ?? pinned ?? 0)}
            onBlur={() => setFocus(null)}
            onKeyDown={onKeyDown}
          />
        )}
      </div>
      <p class="lane-readout" id="grid-readout" aria-live="polite">
        {block ? (
          blockWords(block)
        ) : (
          <span class="muted">Point at a block, or move over them with the arrow keys; a click or Enter pins one.</span>
        )}
      </p>
      <Legend paint={paint} all={all} />
    </div>
  );
}

/** The map in one sentence, for those who do not see it. */
export function mapWords(blocks: readonly TierBlock[]): string {
  const num = (state: TierBlock["state"]) => blocks.filter((block) => block.state === state).length;
  const parts = [`${count(num("cached"))} cached`, `${count(num("free"))} free`];
  if (num("pinned")) parts.push(`${count(num("pinned"))} pinned`);
  if (num("in_flight")) parts.push(`${count(num("in_flight"))} in flight`);
  if (num("unknown")) parts.push(`${count(num("unknown"))} not known`);
  return `${plural(blocks.length, "block")}: ${parts.join(", ")}.`;
}

function blockWords(block: TierBlock): string {
  const parts = [`block ${block.id}`];
  if (block.state === "free") parts.push("free");
  if (block.state === "unknown") parts.push("the log does not say what it holds");
  if (block.state === "pinned") parts.push("pinned by a load");
  if (block.state === "in_flight") parts.push("a copy is on its way here");
  if (block.hash !== null) {
    parts.push(shortHash(block.hash));
    if (block.index !== null) parts.push(`block ${block.index} of its chain`);
    if (block.request_id !== null)
      parts.push(`${block.is_restored ? "re-stored" : "stored"} by ${shortId(block.request_id)}`);
    if (block.age_ns !== null) parts.push(`${duration(block.age_ns)} ago`);
    if (block.num_hits !== null) parts.push(plural(block.num_hits, "hit"));
    if (block.eviction_rank !== null)
      parts.push(block.eviction_rank === 0 ? "goes next" : `goes after ${plural(block.eviction_rank, "other")}`);
  }
  return parts.join(" · ");
}

const STATES: readonly { role: CellLook["role"]; letter: string; text: string }[] = [
  { role: "restored", letter: "R", text: "cached, re-stored" },
  { role: "pinned", letter: "↑", text: "pinned by a load" },
  { role: "in_flight", letter: "↓", text: "in flight: a copy writes it" },
  { role: "free", letter: "", text: "free" },
];

function Legend({ paint, all }: { paint: Paint; all: readonly Owner[] }) {
  const rest = paint === "state" ? STATES : STATES.slice(1);
  return (
    <p class="legend lane-legend">
      {paint === "state" && <Entry look="cached" letter="" text="cached" />}
      {paint === "age" &&
        [0, 1, 2, 3, 4].map((i) => (
          <Entry key={i} look={`age${i as 0 | 1 | 2 | 3 | 4}`} letter={String(i + 1)} text={ageText(i)} />
        ))}
      {paint === "conversation" &&
        all
          .slice(0, NUM_CONVERSATION_COLORS)
          .map(({ id, letter, blocks }, i) => (
            <Entry
              key={id}
              look={`conv${i}`}
              letter={letter}
              text={<a href={href("conversation", id)}>{`${shortId(id)}, ${count(blocks)}`}</a>}
            />
          ))}
      {paint === "conversation" && all.length > NUM_CONVERSATION_COLORS && (
        <Entry
          look="other"
          letter={all[NUM_CONVERSATION_COLORS]?.letter ?? ""}
          text={`${plural(all.length - NUM_CONVERSATION_COLORS, "other")}, by letter`}
        />
      )}
      {rest.map(({ role, letter, text }) => (
        <Entry key={role} look={role} letter={letter} text={text} />
      ))}
    </p>
  );
}

function ageText(i: number): string {
  const low = AGE_EDGES_NS[i - 1];
  const high = AGE_EDGES_NS[i];
  if (high === undefined) return `${duration(low)} or older`;
  return low === undefined ? `under ${duration(high)}` : `${duration(low)} – ${duration(high)}`;
}

function Entry({ look, letter, text }: { look: CellLook["role"]; letter: string; text: preact.ComponentChildren }) {
  const fill = fillOf(look, readInk(isDark.value));
  const style = fill.isOutline
    ? { boxShadow: `inset 0 0 0 1px ${fill.color}`, color: fill.ink }
    : { background: fill.color, color: fill.ink };
  return (
    <span>
      <i class="swatch" style={style} aria-hidden="true">
        {letter}
      </i>
      {text}
    </span>
  );
}
