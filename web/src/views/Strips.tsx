// The timeline: the sources of prompt tokens, then a strip each for stores, re-stores, evictions, loads and the CPU tier,
// all on one time axis with one cursor. Drawing is draw/track's; this mounts it and feeds it.
import { useEffect } from "preact/hooks";
import type { TimelinePoint } from "../api/types";
import { COLORS } from "../draw/palette";
import { paintShadows, type ShadowLine } from "../draw/shadows";
import { paintBars, paintLevel, paintSources, tokensOf } from "../draw/strips";
import { clock, count, exact, percent, plural, share } from "../lib/format";
import { type BlockCount, gapsOf, sumBlocks, sumTokens, topOf } from "../lib/sums";
import { cursorIndex, cursorPoint, unit } from "../state/cursor";
import { hrefHere } from "../state/location";
import { engines, maxBuckets, timeline } from "../state/log";
import { shadowLines } from "../state/shadows";
import { Problem } from "./bits";
import { LABEL_MARGIN, Strip, type StripOptions, stepByKey, useWidth } from "./charts";
import { ShadowKeys } from "./ShadowKeys";

const BLOCK_STRIPS: readonly { name: string; count: BlockCount; color: string; hatched: boolean; kind: string }[] = [
  { name: "stores", count: "stored_blocks", color: COLORS.computed, hatched: false, kind: "blocks_stored" },
  { name: "re-stores", count: "restored_blocks", color: COLORS.restored, hatched: true, kind: "blocks_restored" },
  { name: "evictions", count: "evicted_blocks", color: COLORS.lost, hatched: false, kind: "blocks_evicted" },
  { name: "loads", count: "loaded_blocks", color: COLORS.cpu, hatched: false, kind: "blocks_loaded" },
];

const NAME_MARGIN = 92;

const SOURCES: Omit<StripOptions<TimelinePoint>, "height"> = {
  hasTimeAxis: true,
  padTop: 24,
  yLabel: null,
  yMax: () => 1,
  paint: () => undefined,
};

export function Strips() {
  const [root, width] = useWidth();
  const gutter = width > 0 && width < 480 ? 74 : 92;
  // Beside a wide plot stand the names of the shadows' lines; a narrow one leaves them to the legend.
  const margin = width < 640 ? LABEL_MARGIN : NAME_MARGIN;
  useEffect(() => {
    // In steps of 20 buckets, so that dragging a window's edge does not read the timeline anew at every pixel.
    if (width > 0) maxBuckets.value = Math.min(240, Math.max(40, Math.floor((width - gutter - margin) / 7 / 20) * 20));
  }, [width, gutter, margin]);

  const data = timeline.data.value;
  const isTokens = unit.value === "tokens";
  const sources: StripOptions<TimelinePoint> = {
    ...SOURCES,
    height: width < 640 ? 200 : 320,
    yLabel: isTokens ? (v) => (v >= 10_000 ? `${count(v / 1000)}k` : count(v)) : (v) => percent(v),
    yMax: (points) => (isTokens ? topOf(points, tokensOf) : 1),
    paint: (painter) => {
      const drawn = timeline.data.peek();
      if (drawn) paintSources(painter, drawn, unit.peek());
      if (unit.peek() === "share") paintShadows(painter, shadowLines.peek(), margin === NAME_MARGIN);
    },
  };
  return (
    <div class="strips" ref={root}>
      <Readout />
      <ShadowKeys />
      <Problem what="The timeline could not be read" error={timeline.error.value} />
      {data && width > 0 && (
        <>
          <Slider points={data.points.length}>
            <Shared
              key={`${unit.value} ${sources.height} ${gutter} ${margin}`}
              options={sources}
              width={width}
              gutter={gutter}
              margin={margin}
              label="Prompt tokens by source"
              look={lookOf(shadowLines.value)}
            />
          </Slider>
          {BLOCK_STRIPS.map((strip) => (
            <BlockStrip
              key={`${strip.name} ${gutter} ${margin}`}
              strip={strip}
              width={width}
              gutter={gutter}
              margin={margin}
            />
          ))}
          <TierStrip key={`${gutter} ${margin}`} width={width} gutter={gutter} margin={margin} />
        </>
      )}
    </div>
  );
}

/** Changes when the lines do. */
function lookOf(lines: readonly ShadowLine[]): string {
  return lines.map(({ label, rates }) => `${label} ${rates.size} ${[...rates.values()].at(-1)}`).join("|");
}

/** The room that every strip of the screen shares. */
interface Room {
  width: number;
  gutter: number;
  margin: number;
}

function BlockStrip({ strip, width, gutter, margin }: { strip: (typeof BLOCK_STRIPS)[number] } & Room) {
  const value = (point: TimelinePoint) => point[strip.count];
  const at = cursorPoint.value;
  const shown = at ? value(at) : timeline.data.value ? sumBlocks(timeline.data.value, strip.count) : null;
  return (
    <div class="strip">
      <a class="strip-name" style={{ width: `${gutter - 6}px` }} href={hrefHere({ kind: strip.kind })}>
        <span>{strip.name}</span>
        <b>{count(shown)}</b>
      </a>
      <Shared
        options={{
          height: 34,
          hasTimeAxis: false,
          padTop: 3,
          yLabel: null,
          yMax: (points) => topOf(points, value),
          paint: (painter) => paintBars(painter, value, strip.color, strip.hatched),
        }}
        width={width}
        gutter={gutter}
        margin={margin}
        label={`${strip.name}, blocks a bucket`}
      />
    </div>
  );
}

function TierStrip({ width, gutter, margin }: Room) {
  const capacity = (engines.data.value ?? []).reduce((top, engine) => Math.max(top, engine.num_cpu_blocks), 0);
  const points = timeline.data.value?.points ?? [];
  const at = cursorPoint.value;
  const known = at
    ? at.cpu_blocks_cached
    : (points.findLast((point) => point.cpu_blocks_cached !== null)?.cpu_blocks_cached ?? null);
  return (
    <div class="strip">
      <span class="strip-name" style={{ width: `${gutter - 6}px` }}>
        <span>CPU tier</span>
        <b>{share(known, capacity)}</b>
      </span>
      <Shared
        options={{
          height: 34,
          hasTimeAxis: false,
          padTop: 3,
          yLabel: null,
          yMax: (all) => topOf(all, (point) => point.cpu_blocks_cached, capacity),
          paint: (painter) => paintLevel(painter, (point) => point.cpu_blocks_cached, COLORS.cpu),
        }}
        width={width}
        gutter={gutter}
        margin={margin}
        label="Fill of the CPU tier"
      />
    </div>
  );
}

/** A strip of the first screen: on the timeline's data, with the cursor that all of them share. */
function Shared(props: Room & { options: StripOptions<TimelinePoint>; label: string; look?: string }) {
  return (
    <Strip<TimelinePoint>
      {...props}
      data={timeline.data.value}
      onCursor={setCursor}
      mounted={(track) => cursorIndex.subscribe((index) => byKeyboard && track.point(index))}
    />
  );
}

function setCursor(index: number | null): void {
  cursorIndex.value = index;
}

/** Whether the cursor is being moved by keys: only then do the tracks have to be told where it stands. */
let byKeyboard = false;

/** Makes the shared cursor reachable by keyboard: left and right move it by a bucket, Escape takes it away. */
function Slider({ points, children }: { points: number; children: preact.ComponentChildren }) {
  const move = (index: number | null) => {
    byKeyboard = true;
    cursorIndex.value = index;
    byKeyboard = false;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const next = stepByKey(event.key, cursorIndex.value ?? points - 1, points);
    if (next === undefined) return;
    move(next);
    event.preventDefault();
  };
  return (
    <div
      class="slider"
      role="slider"
      tabIndex={0}
      aria-label="Time cursor"
      aria-valuemin={0}
      aria-valuemax={Math.max(0, points - 1)}
      aria-valuenow={cursorIndex.value ?? Math.max(0, points - 1)}
      aria-valuetext={readoutWords()}
      onKeyDown={onKeyDown}
      onBlur={() => move(null)}
    >
      {children}
    </div>
  );
}

function readoutWords(): string {
  const point = cursorPoint.value;
  const data = timeline.data.value;
  if (!point || !data) return "whole range";
  const when = `${exact(point.wall_ns)} to ${clock(point.wall_ns + data.bucket_ns)}`;
  if (!point.engine_up) return `${when}: the engine was down`;
  if (!point.prompt_tokens) return `${when}: no prompt was looked up`;
  return `${when}: ${percent(point.hit_rate)} hit`;
}

/** The legend; its numbers are the range's, or those of the bucket under the cursor. */
function Readout() {
  const data = timeline.data.value;
  const point = cursorPoint.value;
  if (!data) return timeline.error.value === null ? <p class="readout muted">Reading the timeline…</p> : null;
  const t = point ?? sumTokens(data);
  const all = t.prompt_tokens;
  const rows = [
    { fill: "gpu", mark: "G", name: "GPU hit", value: t.gpu_hit_tokens },
    { fill: "cpu", mark: "C", name: "CPU hit", value: t.cpu_hit_tokens },
    { fill: "restored", mark: "R", name: "of it re-stored", value: t.restored_hit_tokens },
    { fill: "computed", mark: "", name: "computed", value: t.computed_tokens },
  ];
  const gaps = gapsOf(data);
  const isTokens = unit.value === "tokens";
  return (
    <div class="readout" data-testid="readout">
      <span class="when">
        {point
          ? `${clock(point.wall_ns)} – ${clock(point.wall_ns + data.bucket_ns)}`
          : `${plural(data.bucket_ns / 1e9, "s", "s")} a bar`}
        {point && !point.engine_up && ", engine down"}
      </span>
      <span class="legend">
        {rows.map(({ fill, mark, name, value }) => (
          <span key={name}>
            <i class={`swatch fill-${fill}`} aria-hidden="true">
              {mark}
            </i>
            {name} <b>{isTokens ? count(value) : share(value, all)}</b>
          </span>
        ))}
      </span>
      <nav class="units" aria-label="Unit">
        <a href={hrefHere({ unit: null })} aria-current={isTokens ? undefined : "true"}>
          share
        </a>
        <a href={hrefHere({ unit: "tokens" })} aria-current={isTokens ? "true" : undefined}>
          tokens
        </a>
      </nav>
      {gaps.length > 0 && !point && (
        <span class="gaps muted">
          <i class="swatch fill-gap" aria-hidden="true" />
          no data {gaps.length === 1 ? gapWords(gaps[0]) : `in ${plural(gaps.length, "stretch", "stretches")}`}: the
          engine was down
        </span>
      )}
    </div>
  );
}

function gapWords(gap: { fromNs: number; untilNs: number } | undefined): string {
  return gap ? `between ${clock(gap.fromNs)} and ${clock(gap.untilNs)}` : "";
}
