// Of one request: why its lookup ended, who took what was missing, and all the blocks that it wanted and were evicted.
import type { Cut, MissedRun, RequestDetail } from "../api/types";
import { causeOf, detailOf } from "../lib/causes";
import { count, duration, NONE, plural, span } from "../lib/format";
import { href, hrefHere } from "../state/location";
import { CauseMark, Figure, Hash, Panel, RequestLink, Scroll } from "./bits";

export function CutPanel({ data }: { data: RequestDetail }) {
  const { cut, missed } = data;
  if (!cut?.cause) return null;
  return (
    <Panel
      title="Why it ended there"
      class="cut"
      tools={<a href={href("misses", null, { cause: cut.cause })}>all lookups of this cause</a>}
    >
      <div class="halves flat">
        <div>
          <p>
            <CauseMark cause={cut.cause} /> <b>{causeOf(cut.cause).label}</b>
            {detailOf(cut.cause, cut.cause_detail).label !== NONE && `, ${detailOf(cut.cause, cut.cause_detail).label}`}
            . {causeOf(cut.cause).means} {detailOf(cut.cause, cut.cause_detail).advice}
          </p>
          <CutFigures cut={cut} />
        </div>
        {missed.length > 0 && <Missed runs={missed} />}
      </div>
    </Panel>
  );
}

function CutFigures({ cut }: { cut: Cut }) {
  return (
    <dl class="figures">
      {cut.index !== null && (
        <Figure label="cut at" value={<a href={hrefHere({ block: String(cut.index) })}>block {count(cut.index)}</a>} />
      )}
      {cut.missing_hash && <Figure label="missing there" value={<Hash hash={cut.missing_hash} />} />}
      {cut.sibling_hash && (
        <Figure
          label="the last time there came"
          value={
            <>
              <Hash hash={cut.sibling_hash} /> in <RequestLink id={cut.by_request_id} />
            </>
          }
        />
      )}
      {cut.evicted_step !== null && (
        <>
          <Figure
            label="evicted"
            value={`at step ${count(cut.evicted_step)}, ${duration(cut.since_ns)} before the lookup`}
          />
          <Figure label="by the store of" value={<RequestLink id={cut.by_request_id} />} />
          <Figure label="after its own store" value={duration(cut.age_ns)} />
          <Figure
            label="re-store could have kept it"
            value={cut.was_owned === null ? "not known" : cut.was_owned ? "yes, a running request had it" : "no"}
          />
        </>
      )}
      {cut.lost_tokens !== null && <Figure label="lost" value={plural(cut.lost_tokens, "token")} />}
      {Boolean(cut.behind_tokens) && (
        <Figure label="of it behind the cut" value={plural(cut.behind_tokens ?? 0, "token")} />
      )}
    </dl>
  );
}

const MOST_RUNS = 60;

/** The evicted blocks that this lookup wanted, those that went together in one line. */
function Missed({ runs }: { runs: readonly MissedRun[] }) {
  const blocks = runs.reduce((sum, { num_blocks }) => sum + num_blocks, 0);
  return (
    <div>
      <p>{plural(blocks, "block")} that it wanted had been in the CPU tier and were evicted:</p>
      <Scroll label="Evicted blocks that it wanted" class="scroll short">
        <table>
          <thead>
            <tr>
              <th scope="col">blocks</th>
              <th scope="col" class="right">
                at step
              </th>
              <th scope="col" class="right">
                before
              </th>
              <th scope="col">by the store of</th>
              <th scope="col">then running</th>
            </tr>
          </thead>
          <tbody>
            {runs.slice(0, MOST_RUNS).map((run) => (
              <tr key={run.seq}>
                <th scope="row">
                  {run.kv_group > 0 ? (
                    `g${run.kv_group} ${span(run.first_index, run.num_blocks)}`
                  ) : (
                    <a href={hrefHere({ block: String(run.first_index) })}>{span(run.first_index, run.num_blocks)}</a>
                  )}
                </th>
                <td class="right">{count(run.evicted_step)}</td>
                <td class="right">{duration(run.since_ns)}</td>
                <td>
                  <RequestLink id={run.by_request_id} />
                  {run.is_by_restore && <span class="muted"> a re-store</span>}
                </td>
                <td>{run.num_owned > 0 ? (run.num_owned === run.num_blocks ? "yes" : count(run.num_owned)) : "no"}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {runs.length > MOST_RUNS && (
          <p class="muted">and {plural(runs.length - MOST_RUNS, "more stretch", "more stretches")}</p>
        )}
      </Scroll>
    </div>
  );
}
