// One request: what its lookup found, the lane of its blocks, the history of the pinned block, its events.
import type { ChainBlock, RequestDetail } from "../api/types";
import { seconds } from "../lib/benefit";
import { causeOf } from "../lib/causes";
import { groupRatios, kindOf, statusWords, touchesBlock } from "../lib/events";
import { clock, count, duration, exact, NONE, plural, share, shortId } from "../lib/format";
import { buildLane } from "../lib/lane";
import { href, hrefHere, route, setParams } from "../state/location";
import { engineOf } from "../state/log";
import { detail } from "../state/requests";
import { Ago, Figure, Mark, Panel, Problem, RequestLink, SplitBar } from "./bits";
import { CutPanel } from "./CutPanel";
import { TakeAway } from "./charts";
import { EventList } from "./Feed";
import { LaneView } from "./Lane";

export function RequestView() {
  const data = detail.data.value;
  const isMissing = detail.status.value === 404;
  return (
    <main class="view" id="main">
      <p class="crumbs">
        <a href={href("requests")}>requests</a>
      </p>
      {isMissing ? (
        <>
          <h1>No such request</h1>
          <p>{detail.error.value}</p>
        </>
      ) : (
        <Problem what="The request could not be read" error={detail.error.value} />
      )}
      {data ? <Page data={data} /> : !detail.error.value && <p class="muted">Reading the request…</p>}
    </main>
  );
}

function Page({ data }: { data: RequestDetail }) {
  const { request } = data;
  const text = route.value.params.block;
  const wanted = text !== undefined && /^\d+$/.test(text) ? Number(text) : null;
  const block = data.chain.find(({ index }) => index === wanted) ?? null;
  const pinned = block?.index ?? null;
  const pin = (index: number | null) => setParams({ block: index === null ? null : String(index) }, true);
  const ratios = groupRatios(engineOf(request.engine_id), data.hash_block_size);
  const events = [...data.events].reverse().filter((event) => pinned === null || touchesBlock(event, pinned, ratios));
  return (
    <>
      <h1>
        <span class="hash">{request.request_id}</span>
      </h1>
      <Outcome data={data} />
      <Figures data={data} />
      <CutPanel data={data} />
      {!data.is_chain_complete && (
        <p class="note alarm">
          <Mark tone="alarm">!</Mark> The log has lost part of this chain: events were dropped, or it began before the
          log did.
        </p>
      )}
      {data.chain.length > 0 ? (
        <Panel
          title="Block chain"
          tools={
            <>
              <span class="muted">{plural(data.hash_block_size, "token")} a block, time runs down</span>
              <TakeAway path={`/requests/${encodeURIComponent(request.request_id)}`} params={{}} what="This request" />
            </>
          }
        >
          <LaneView detail={data} pinned={pinned} onPin={pin} />
        </Panel>
      ) : (
        <p class="muted">
          Its prompt is shorter than one block of {plural(data.hash_block_size, "token")}: there is nothing to cache.
        </p>
      )}
      <div class="halves">
        <History block={block} asOf={data.history_last_seq} since={data.history_first_seq} onClose={() => pin(null)} />
        <Panel title={pinned === null ? "Events of this request" : `Events of this request on block ${pinned}`}>
          <EventList events={events} empty="No event." isDated />
        </Panel>
      </div>
    </>
  );
}

/** The answer first: what of the prompt came from where, and what the cut cost. */
function Outcome({ data }: { data: RequestDetail }) {
  const { request, chain, hash_block_size: size } = data;
  const { gpu_hit_tokens: gpu, cpu_hit_tokens: cpu, prompt_tokens: prompt } = request;
  if (gpu === null || cpu === null) {
    return <p class="sentence">Not looked up yet: {plural(prompt, "prompt token")} wait to be scheduled.</p>;
  }
  const lane = buildLane(data);
  const missing = chain.find((block) => block.source === "missing");
  return (
    <p class="sentence">
      <b>{share(gpu + cpu, prompt)}</b> of {plural(prompt, "prompt token")} came from cache: {share(gpu, prompt)} from
      the GPU, {share(cpu, prompt)} from the CPU tier.{" "}
      {missing && (
        <>
          The lookup was cut at <a href={hrefHere({ block: String(missing.index) })}>block {missing.index}</a>
          {data.cut?.cause ? `: ${causeOf(data.cut.cause).label}` : missing.why_missing && `: ${missing.why_missing}`}.{" "}
        </>
      )}
      {data.cut?.lost_tokens ? (
        <>
          That cost <b>{plural(data.cut.lost_tokens, "token")}</b> that had been computed before
          {data.cut.behind_tokens ? `, ${count(data.cut.behind_tokens)} of them still lay behind the cut` : ""}.
        </>
      ) : (
        lane.numBehind > 0 && (
          <>
            Behind the cut lay {plural(lane.numBehind, "usable block")}, {count(lane.numBehind * size)} tokens.
          </>
        )
      )}
    </p>
  );
}

function Figures({ data }: { data: RequestDetail }) {
  const { request } = data;
  const gpu = request.gpu_hit_tokens;
  const cpu = request.cpu_hit_tokens;
  return (
    <dl class="figures row">
      <Figure
        label="from cache"
        value={
          <SplitBar
            split={
              gpu === null || cpu === null
                ? null
                : {
                    prompt: request.prompt_tokens,
                    gpu,
                    cpu,
                    restored: request.restored_hit_tokens ?? 0,
                    lost: request.lost_tokens ?? 0,
                  }
            }
          />
        }
      />
      <Figure label="state" value={request.state + (request.status ? `, ${statusWords(request.status)}` : "")} />
      <Figure label="started" value={<Started ns={request.started_wall_ns} />} />
      <Figure
        label="took"
        value={request.finished_wall_ns === null ? NONE : duration(request.finished_wall_ns - request.started_wall_ns)}
      />
      <Figure label="TTFT" value={duration(request.ttft_ns)} />
      <Figure label="tokens spared" value={sparedWords(data)} />
      <Figure label="output tokens" value={count(request.output_tokens)} />
      <Figure label="re-stored blocks" value={count(request.restored_blocks)} />
      {request.num_preemptions > 0 && <Figure label="preempted" value={`${count(request.num_preemptions)}×`} />}
      {data.conversation_id && (
        <Figure
          label="conversation"
          value={
            <a class="hash" href={href("conversation", data.conversation_id)} title={data.conversation_id}>
              {shortId(data.conversation_id)}
            </a>
          }
        />
      )}
      {request.session_id && <Figure label="session" value={<span class="hash">{request.session_id}</span>} />}
    </dl>
  );
}

/** What the caches gave, and what that spared at this engine's measured speed. */
function sparedWords(data: RequestDetail): string {
  if (data.saved_tokens === null) return NONE;
  return data.saved_prefill_s === null
    ? count(data.saved_tokens)
    : `${count(data.saved_tokens)}, ${seconds(data.saved_prefill_s)} of prefill`;
}

function Started({ ns }: { ns: number }) {
  return (
    <>
      {exact(ns)}{" "}
      <span class="muted">
        <Ago ns={ns} />
      </span>
    </>
  );
}

interface HistoryProps {
  block: ChainBlock | null;
  /** The row of the log up to which the history was read. */
  asOf: number;
  /** The row from which on it has no gap; null where it has none at all. */
  since: number | null;
  onClose: () => void;
}

/** What became of one block's CPU copy. */
function History({ block, asOf, since, onClose }: HistoryProps) {
  if (block === null) {
    return (
      <Panel title="Block history">
        <p class="muted">Pin a block in the lane to see what happened to it.</p>
      </Panel>
    );
  }
  const rest = block.num_moments - block.history.length;
  return (
    <Panel
      title={`Block ${block.index}`}
      tools={
        <button type="button" onClick={onClose}>
          unpin
        </button>
      }
    >
      <p>
        <span class="hash">{block.hash}</span>
        <br />
        {block.source === "missing" || block.source === "computed"
          ? (block.why_missing ?? "computed")
          : `hit on the ${block.source.toUpperCase()}`}
        {"; "}
        {tierWords(block)} as of row {count(asOf)} of the log.{" "}
        <a href={href("now", null, { find: block.hash.slice(0, 16) })}>find in the feed</a>
      </p>
      {block.history.length === 0 ? (
        <p class="muted">Nothing has happened to its CPU copy.</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls has to be reachable by keyboard
        <section class="scroll" tabIndex={0} aria-label="History of the block">
          <table class="history">
            <thead>
              <tr>
                <th scope="col" class="right">
                  step
                </th>
                <th scope="col">what</th>
                <th scope="col">request</th>
                <th scope="col">by the store of</th>
                <th scope="col" class="right">
                  time
                </th>
              </tr>
            </thead>
            <tbody>
              {[...block.history].reverse().map((moment) => (
                <tr key={`${moment.seq} ${moment.kv_group}`}>
                  <td class="right">{count(moment.step)}</td>
                  <td>
                    <Mark tone={kindOf(moment.kind).tone}>{kindOf(moment.kind).mark}</Mark> {kindOf(moment.kind).label}
                    {moment.kv_group ? ` g${moment.kv_group}` : ""}
                  </td>
                  <td>
                    <RequestLink id={moment.request_id} />
                  </td>
                  <td>
                    <RequestLink id={moment.by_request_id} />
                  </td>
                  <td class="right" title={exact(moment.wall_ns, true)}>
                    {clock(moment.wall_ns, true)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {rest > 0 && <p class="muted">and {plural(rest, "older moment")}</p>}
        </section>
      )}
      {since !== null && (
        <p class="muted">
          Much has happened to the chain's first blocks: from row {count(since)} of the log on this is everything, of
          what is older some is left out.
        </p>
      )}
    </Panel>
  );
}

function tierWords(block: ChainBlock): string {
  if (block.is_in_cpu_tier === null) return "not known to be in the CPU tier";
  return block.is_in_cpu_tier ? "in the CPU tier" : "not in the CPU tier";
}
