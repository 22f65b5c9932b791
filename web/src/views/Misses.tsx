// Why lookups missed: what was lost by cause over time, each cause with what to do about it, and requests to look at.

import { signal } from "@preact/signals";
import { windowParams } from "../api/client";
import type { CauseExample, CauseRow, Causes } from "../api/types";
import { type CauseBucket, paintCauses } from "../draw/causes";
import { ticks } from "../draw/scale";
import { type AdviceView, causeOf, detailOf, NOT_RECORDED } from "../lib/causes";
import { wasUp } from "../lib/engines";
import { clock, count, duration, NONE, percent, plural, share } from "../lib/format";
import { causeRows, examplesOf, type LossBucket, lossBuckets, lostByCause } from "../lib/losses";
import { topOf } from "../lib/sums";
import { causes } from "../state/evidence";
import { href, hrefHere, range, route } from "../state/location";
import { currentWindow, engines } from "../state/log";
import { CauseMark, Problem, RequestLink, rangeWords, Scroll } from "./bits";
import { Strip, stepByKey, TakeAway, useWidth } from "./charts";

/** The bucket under the cursor. */
const cursor = signal<number | null>(null);

export function MissesView() {
  const data = causes.data.value;
  const only = route.value.params.cause ?? null;
  return (
    <main class="view" id="main">
      <h1>Why it missed</h1>
      <Problem what="The causes could not be read" error={causes.error.value} />
      {data === null ? (
        !causes.error.value && <p class="muted">Reading the causes…</p>
      ) : data.num_lookups === 0 ? (
        <p class="sentence">No prompt was looked up {rangeWords()}.</p>
      ) : (
        <>
          <Answer data={data} />
          <LossTimeline data={data} only={only} />
          <CauseTable data={data} only={only} />
          <DirectoryNote data={data} />
        </>
      )}
    </main>
  );
}

/** The answer first: how much was lost, and to what most of it. */
function Answer({ data }: { data: Causes }) {
  const [first, second] = lostByCause(data);
  if (data.lost_tokens === 0 || !first) {
    return (
      <p class="sentence">
        <b>Nothing was lost</b> {rangeWords()}: all that had been computed before came from cache. What was computed was
        new.
      </p>
    );
  }
  const part = (tokens: number) => share(tokens, data.lost_tokens);
  return (
    <p class="sentence" data-testid="answer">
      <b>{share(data.lost_tokens, data.prompt_tokens)}</b> of {count(data.prompt_tokens)} prompt tokens {rangeWords()}{" "}
      were computed although they had been computed before: {part(first.tokens)} of that{" "}
      <a href={hrefHere({ cause: first.cause })}>{causeOf(first.cause).label}</a>
      {second && (
        <>
          , {part(second.tokens)} <a href={hrefHere({ cause: second.cause })}>{causeOf(second.cause).label}</a>
        </>
      )}
      .{" "}
      {data.behind_tokens > 0 && (
        <>{plural(data.behind_tokens, "token")} of it lay in a tier, of no use behind the cut.</>
      )}
    </p>
  );
}

function LossTimeline({ data, only }: { data: Causes; only: string | null }) {
  const [box, width] = useWidth();
  const known = engines.data.value ?? [];
  const points: CauseBucket[] = lossBuckets(data, only).map((bucket) => ({
    ...bucket,
    engine_up: wasUp(bucket.wall_ns, bucket.wall_ns + data.bucket_ns, known),
  }));
  const gutter = width > 0 && width < 480 ? 62 : 72;
  const at = cursor.value;
  const point = at === null ? null : (points[at] ?? null);
  const totals = lostByCause(data);
  return (
    <section class="panel timeline" aria-label="Lost tokens over time">
      <div class="readout" data-testid="loss-readout">
        <span class="when">
          {point
            ? `${clock(point.wall_ns)} – ${clock(point.wall_ns + data.bucket_ns)}`
            : `${plural(data.bucket_ns / 1e9, "s", "s")} a bar`}
        </span>
        <span class="legend">
          {totals.map(({ cause, tokens }) => (
            <a
              key={cause}
              class="key-of"
              href={hrefHere({ cause: only === cause ? null : cause })}
              aria-current={only === cause ? "true" : undefined}
            >
              <CauseMark cause={cause} /> {causeOf(cause).label} <b>{count(point ? tokensOf(point, cause) : tokens)}</b>
            </a>
          ))}
          {totals.length === 0 && <span class="muted">no token was lost</span>}
        </span>
        <span class="push" />
        {only !== null && <a href={hrefHere({ cause: null })}>all causes</a>}
        <TakeAway path="/causes" params={windowParams(currentWindow())} what="Causes" />
      </div>
      <div
        class="slider"
        ref={box}
        role="slider"
        tabIndex={0}
        aria-label="Time cursor"
        aria-valuemin={0}
        aria-valuemax={Math.max(0, points.length - 1)}
        aria-valuenow={at ?? Math.max(0, points.length - 1)}
        aria-valuetext={point ? bucketWords(point, data.bucket_ns) : "whole range"}
        onBlur={() => {
          cursor.value = null;
        }}
        onKeyDown={(event) => {
          const next = stepByKey(event.key, cursor.value ?? points.length - 1, points.length);
          if (next === undefined) return;
          cursor.value = next;
          event.preventDefault();
        }}
      >
        {width > 0 && (
          <Strip<CauseBucket>
            key={only ?? "all"}
            data={{ ...data, points }}
            look={`${data.until_wall_ns} ${only}`}
            options={{
              height: width < 640 ? 180 : 240,
              hasTimeAxis: true,
              padTop: 10,
              yLabel: (v) => (v >= 10_000 ? `${count(v / 1000)}k` : count(v)),
              yMax: (all) =>
                ticks(
                  topOf(all, (bucket) => bucket.total, 2),
                  2,
                ).at(-1) ?? 2,
              paint: paintCauses,
            }}
            width={width}
            gutter={gutter}
            label="Lost tokens by cause"
            onCursor={(index) => {
              cursor.value = index;
            }}
          />
        )}
      </div>
    </section>
  );
}

const tokensOf = (bucket: LossBucket, cause: string) => bucket.lost.find((part) => part.cause === cause)?.tokens ?? 0;

function bucketWords(bucket: LossBucket, widthNs: number): string {
  const when = `${clock(bucket.wall_ns)} to ${clock(bucket.wall_ns + widthNs)}`;
  if (bucket.total === 0) return `${when}: nothing lost`;
  return `${when}: ${bucket.lost.map(({ cause, tokens }) => `${causeOf(cause).label} ${plural(tokens, "token")}`).join(", ")}`;
}

function CauseTable({ data, only }: { data: Causes; only: string | null }) {
  const rows = causeRows(data, only);
  const most = Math.max(1, ...rows.map((row) => row.lost_tokens));
  return (
    <Scroll label="Causes">
      <table class="causes">
        <thead>
          <tr>
            <th scope="col">why the lookup ended</th>
            <th scope="col" class="right">
              lookups
            </th>
            <th scope="col" class="right">
              lost tokens
            </th>
            <th scope="col" class="wide bar-cell">
              <span class="unseen">as a bar</span>
            </th>
            <th scope="col" class="right wide">
              of prompt
            </th>
            <th scope="col" class="right wide" title="Of the lost: lay in a tier behind the cut">
              behind the cut
            </th>
            <th scope="col" class="wide">
              what to do about it
            </th>
            <th scope="col">look at</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={`${row.cause} ${row.detail}`} row={row} most={most} data={data} />
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Row({ row, most, data }: { row: CauseRow; most: number; data: Causes }) {
  if (row.cause === null || row.cause === NOT_RECORDED) {
    return (
      <tr class="muted">
        <th scope="row">{row.cause === null ? "nothing was left to find" : "not recorded by this log's version"}</th>
        <td class="right">{count(row.num_lookups)}</td>
        <td class="right">{NONE}</td>
        <td class="wide" />
        <td class="right wide">{NONE}</td>
        <td class="right wide">{NONE}</td>
        <td class="wide" colSpan={2}>
          {row.cause === null ? "The whole prompt was found." : "Lookups from now on say why."}
        </td>
      </tr>
    );
  }
  const words = causeOf(row.cause);
  const detail = detailOf(row.cause, row.detail);
  return (
    <tr>
      <th scope="row" title={words.means}>
        <CauseMark cause={row.cause} />{" "}
        <a href={hrefHere({ cause: route.value.params.cause === row.cause ? null : row.cause })}>{words.label}</a>
        {detail.label !== NONE && <span class="sub">{detail.label}</span>}
        <span class="sub narrow">
          {detail.advice} <AdviceLink view={detail.view} />
        </span>
      </th>
      <td class="right">{count(row.num_lookups)}</td>
      <td class="right">{count(row.lost_tokens)}</td>
      <td class="wide bar-cell">
        <span class="amount" aria-hidden="true">
          <i class={fillClass(row.cause)} style={{ width: `${((row.lost_tokens / most) * 100).toFixed(2)}%` }} />
        </span>
      </td>
      <td class="right wide">{row.lost_tokens > 0 ? percent(row.lost_share) : NONE}</td>
      <td class="right wide">{row.behind_tokens > 0 ? count(row.behind_tokens) : NONE}</td>
      <td class="advice wide">
        {detail.advice} <AdviceLink view={detail.view} />
      </td>
      <td>
        <ul class="plain">
          {examplesOf(data, row).map((example) => (
            <li key={example.seq}>
              <RequestLink id={example.request_id} /> <span class="muted wide">{exampleWords(example)}</span>
            </li>
          ))}
        </ul>
      </td>
    </tr>
  );
}

/** What it lost, and how long before it the block had gone. */
function exampleWords({ lost_tokens: lost, since_ns: since }: CauseExample): string {
  const parts = [lost > 0 ? `lost ${count(lost)}` : "", since === null ? "" : `gone ${duration(since)} before`];
  return parts.filter((part) => part !== "").join(", ");
}

export function fillClass(cause: string): string {
  const { tone, isHatched } = causeOf(cause);
  return `fill-cause-${tone}${isHatched ? "-hatched" : ""}`;
}

const ADVICE: Readonly<Record<Exclude<AdviceView, null>, string>> = {
  policy: "to the switch",
  whatif: "to the what-if",
  tier: "to the tier",
  benefit: "to the benefit",
};

function AdviceLink({ view }: { view: AdviceView }) {
  return view === null ? null : (
    <a class="nowrap" href={href(view)}>
      {ADVICE[view]}
    </a>
  );
}

/** What the directory of seen hashes can know, and what it has forgotten. */
function DirectoryNote({ data: { directory } }: { data: Causes }) {
  if (!directory || directory.capacity === null) return null;
  const forgotten = directory.num_forgotten ?? 0;
  return (
    <p class="muted">
      The engine remembers up to {count(directory.capacity)} hashes to tell what is new from what was lost
      {forgotten > 0
        ? `; it has forgotten ${count(forgotten)} so far, which may be called never seen when they come back.`
        : ", and has forgotten none so far."}{" "}
      {range.value.type === "all" ? "" : "Lookups after a preemption do not count."}
    </p>
  );
}
