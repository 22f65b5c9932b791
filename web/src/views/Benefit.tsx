// Regret and benefit: what evictions cost, what re-store gained and spent, per policy, and the ratio that people quote.

import { windowParams } from "../api/client";
import type { Assumption, Benefit, BenefitView as Data, PolicyBenefit } from "../api/types";
import { Histogram } from "../draw/Histogram";
import { binWords, edge, holdsWords, outcome, quantity, seconds, times, trimBins } from "../lib/benefit";
import { bytes, clock, count, NONE, percent, plural, share } from "../lib/format";
import { benefit } from "../state/evidence";
import { href, hrefHere } from "../state/location";
import { currentWindow } from "../state/log";
import { Figure, Mark, Panel, Problem, rangeWords, Scroll } from "./bits";
import { TakeAway, useWidth } from "./charts";

export function BenefitPage() {
  const data = benefit.data.value;
  return (
    <main class="view" id="main">
      <h1>What re-store gains</h1>
      <Problem what="The account could not be read" error={benefit.error.value} />
      {data === null ? (
        !benefit.error.value && <p class="muted">Reading the account…</p>
      ) : data.total.num_lookups === 0 ? (
        <p class="sentence">No prompt was looked up {rangeWords()}.</p>
      ) : (
        <>
          <Verdict data={data} />
          <div class="halves">
            <Account total={data.total} />
            <Quoted data={data} />
          </div>
          <Regret total={data.total} />
          <Policies rows={data.policies} />
        </>
      )}
    </main>
  );
}

/** The answer first: does it pay here. */
function Verdict({ data: { total } }: { data: Data }) {
  const { restore, saved_s: saved, spent_s: spent, roi } = total;
  const gained = (
    <>
      <b>{plural(restore.hit_tokens, "prompt token")}</b> ({share(restore.hit_tokens, total.prompt_tokens)}) came from
      blocks that were re-stored
    </>
  );
  switch (outcome(total)) {
    case "idle":
      return (
        <p class="sentence" data-testid="answer">
          <b>Nothing was re-stored</b> {rangeWords()}.{" "}
          {total.regret.wanted_owned_blocks > 0
            ? `Of the blocks that were evicted and wanted again, ${count(total.regret.wanted_owned_blocks)} belonged to a running request: re-store could have kept these.`
            : "No running request lost a block that was wanted again: there was nothing to gain."}
        </p>
      );
    case "unhit":
      return (
        <p class="sentence" data-testid="answer">
          {plural(restore.restored_blocks, "block")} were re-stored {rangeWords()} and <b>none was hit yet</b>:{" "}
          {spent === null ? "what the copies took is not measured" : `${seconds(spent)} of copying gained nothing`}.
        </p>
      );
    case "uncertain":
      return (
        <p class="sentence" data-testid="answer">
          {gained} {rangeWords()}. What that spared <b>cannot be told</b>: {total.prefill.doubt}.
        </p>
      );
    case "unmeasured":
      return (
        <p class="sentence" data-testid="answer">
          {gained} {rangeWords()}
          {saved !== null && <>, which spared {seconds(saved)} of prefill</>}. What the copies took is not measured by
          this engine's worker, so there is no ratio.
        </p>
      );
    default:
      return (
        <p class="sentence" data-testid="answer">
          {gained} {rangeWords()}: that spared <b>{seconds(saved)}</b> of prefill for <b>{seconds(spent)}</b> of copying
          {roi !== null && (
            <>
              , <b>{times(roi)}</b>
            </>
          )}
          . {outcome(total) === "lost" && "With the prefill of what it pushed out, it cost more than it gained."}
        </p>
      );
  }
}

function Account({ total }: { total: Benefit }) {
  const { restore, prefill } = total;
  return (
    <Panel title="The account">
      <dl class="figures">
        <Figure
          label="re-stored"
          value={`${plural(restore.restored_blocks, "block")}, ${bytes(restore.restored_bytes)}`}
        />
        <Figure
          label="copying them took"
          value={
            restore.copy_ns === null
              ? "not measured"
              : `${seconds(restore.copy_ns / 1e9)}${restore.measured_blocks < restore.restored_blocks ? `, of ${count(restore.measured_blocks)} blocks` : ""}`
          }
        />
        <Figure label="hit later" value={`${plural(restore.loaded_blocks, "block")}, each hit counts`} />
        <Figure label="prompt tokens that gave" value={count(restore.hit_tokens)} />
        <Figure
          label="pushed out for it"
          value={`${plural(restore.displaced_blocks, "block")}, ${count(restore.displaced_wanted_blocks)} wanted again`}
        />
      </dl>
      <dl class="figures">
        <Figure label="prefill spared" value={<b>{seconds(total.saved_s)}</b>} />
        <Figure label="copying" value={seconds(total.spent_s)} />
        <Figure label="prefill of what it pushed out, at most" value={seconds(total.displaced_s)} />
        <Figure label="gained / spent" value={<b>{times(total.roi)}</b>} />
      </dl>
      <p class="help-text muted">
        {prefill.seconds_per_token !== null &&
          `Prefill takes ${seconds(prefill.seconds_per_token)} a token here: the slope of step time over tokens, from ${plural(prefill.num_steps, "step")}${prefill.r_squared === null ? "" : `, R² ${prefill.r_squared.toFixed(2)}`}. Every policy is priced at it.`}
        {prefill.doubt !== null && (
          <>
            {" "}
            <b>Nothing can be concluded from prefill that was spared</b>: {prefill.doubt}.
          </>
        )}
      </p>
    </Panel>
  );
}

/** What people quote, next to what was measured here. */
function Quoted({ data }: { data: Data }) {
  return (
    <Panel
      title="The ratio that people quote"
      tools={<span class={`verdict verdict-${data.holds}`}>{holdsWords(data)}</span>}
    >
      <table>
        <thead>
          <tr>
            <th scope="col">per 256 tokens</th>
            <th scope="col" class="right">
              quoted
            </th>
            <th scope="col" class="right">
              measured here
            </th>
          </tr>
        </thead>
        <tbody>
          {data.assumptions.map((row: Assumption) => (
            <tr key={row.name}>
              <th scope="row">{row.label}</th>
              <td class="right">{quantity(row.quoted, row.unit)}</td>
              <td class="right">
                <b>{quantity(row.measured, row.unit)}</b>
              </td>
            </tr>
          ))}
          <tr>
            <th scope="row">hits of a re-stored block</th>
            <td class="right">{times(1)}</td>
            <td class="right">
              <b>{times(data.hits_per_restore)}</b>
            </td>
          </tr>
        </tbody>
      </table>
      <p class="help-text">{data.verdict}</p>
    </Panel>
  );
}

/** Evicted, and wanted again. */
function Regret({ total: { regret } }: { total: Benefit }) {
  const [box, width] = useWidth();
  const bins = trimBins(regret.histogram);
  return (
    <Panel
      title="Evicted and wanted again"
      tools={<TakeAway path="/benefit" params={{ ...windowParams(currentWindow()), table: "regret" }} what="Regret" />}
    >
      <p>
        {regret.evicted_blocks === 0 ? (
          <>Nothing was evicted {rangeWords()}: the CPU tier is large enough.</>
        ) : (
          <>
            Of {plural(regret.evicted_blocks, "evicted block")}, lookups wanted <b>{count(regret.wanted_blocks)}</b>{" "}
            again ({percent(regret.wanted_share)}; each time counts), {count(regret.wanted_owned_blocks)} of them had a
            running owner when they went. Lookups that were cut at an evicted block computed{" "}
            <a href={href("misses", null, { cause: "evicted" })}>{plural(regret.lost_tokens, "token")}</a> again.
          </>
        )}
      </p>
      {bins.length > 0 && (
        <div ref={box}>
          <Histogram
            bars={bins.map((bin) => ({
              from: edge(bin.from_ns),
              value: bin.num_blocks,
              words: `${plural(bin.num_blocks, "block")} wanted again ${binWords(bin)}`,
            }))}
            end={endOf(bins.at(-1)?.to_ns)}
            width={width}
            height={170}
            label="Blocks wanted again, by the time since their eviction"
            tone="lost"
            valueLabel={(value) => count(value)}
          />
          <p class="muted axis-name">blocks by the time from the eviction to the lookup that wanted them</p>
        </div>
      )}
    </Panel>
  );
}

const endOf = (ns: number | null | undefined) => (ns === null || ns === undefined ? "∞" : edge(ns));

function Policies({ rows }: { rows: readonly PolicyBenefit[] }) {
  if (rows.length === 0) return null;
  const most = Math.max(1e-9, ...rows.map((row) => Math.max(row.saved_s ?? 0, row.spent_s ?? 0)));
  return (
    <Panel
      title="By version of the policy"
      tools={<TakeAway path="/benefit" params={windowParams(currentWindow())} what="Benefit by policy" />}
    >
      <Scroll label="Benefit by policy">
        <table>
          <thead>
            <tr>
              <th scope="col">policy</th>
              <th scope="col">obeyed</th>
              <th scope="col" class="right">
                lookups
              </th>
              <th scope="col" class="right">
                hit rate
              </th>
              <th scope="col" class="right">
                re-stored
              </th>
              <th scope="col" class="right">
                wanted again
              </th>
              <th scope="col" class="right">
                gained
              </th>
              <th scope="col" class="right">
                spent
              </th>
              <th scope="col" class="wide bar-cell">
                <span class="unseen">gained and spent as bars</span>
              </th>
              <th scope="col" class="right">
                gained / spent
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={`${row.policy_version} ${row.first_wall_ns}`}>
                <th scope="row">
                  <Mark tone={row.label === null || row.label === "off" ? "plain" : "restored"}>
                    {row.label === null ? "?" : row.label === "off" ? "0" : "R"}
                  </Mark>{" "}
                  {row.label ?? "not known"} {row.policy_version === null ? "" : `v${count(row.policy_version)}`}
                </th>
                <td>
                  <a
                    href={hrefHere({
                      range: `${Math.floor(row.first_wall_ns / 1e6)}-${Math.ceil(row.last_wall_ns / 1e6) + 1}`,
                    })}
                  >
                    {clock(row.first_wall_ns)} – {clock(row.last_wall_ns)}
                  </a>
                </td>
                <td class="right">{count(row.num_lookups)}</td>
                <td class="right">{percent(row.hit_rate)}</td>
                <td class="right">{row.restore.restored_blocks > 0 ? count(row.restore.restored_blocks) : NONE}</td>
                <td class="right">{percent(row.regret.wanted_share)}</td>
                <td class="right">{seconds(row.saved_s)}</td>
                <td class="right">{seconds(row.spent_s)}</td>
                <td class="wide bar-cell">
                  <span class="pair" aria-hidden="true">
                    <i
                      class="fill-lane-restored"
                      style={{ width: `${(((row.saved_s ?? 0) / most) * 100).toFixed(2)}%` }}
                    />
                    <i
                      class="fill-cause-lost"
                      style={{ width: `${(((row.spent_s ?? 0) / most) * 100).toFixed(2)}%` }}
                    />
                  </span>
                </td>
                <td class="right">
                  <b>{times(row.roi)}</b>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}
