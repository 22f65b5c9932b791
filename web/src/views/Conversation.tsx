// One conversation turn by turn: what each turn found, why its lookup ended, and where it lost its prefix.
import type { ConversationDetail, Turn } from "../api/types";
import { cutWords } from "../lib/causes";
import { clock, count, duration, exact, NONE, percent, plural, ratio, shortId } from "../lib/format";
import { conversation } from "../state/evidence";
import { href } from "../state/location";
import { Ago, CauseMark, Figure, Panel, Problem, RequestLink, Scroll, SplitBar } from "./bits";
import { TakeAway } from "./charts";

export function ConversationView() {
  const data = conversation.data.value;
  const isMissing = conversation.status.value === 404;
  return (
    <main class="view" id="main">
      <p class="crumbs">
        <a href={href("conversations")}>conversations</a>
      </p>
      {isMissing ? (
        <>
          <h1>No such conversation</h1>
          <p>{conversation.error.value}</p>
        </>
      ) : (
        <Problem what="The conversation could not be read" error={conversation.error.value} />
      )}
      {data ? <Page data={data} /> : !conversation.error.value && <p class="muted">Reading the conversation…</p>}
    </main>
  );
}

function Page({ data }: { data: ConversationDetail }) {
  const { conversation: sums, turns } = data;
  const isBranched = new Set(turns.map(({ turn }) => turn)).size < turns.length;
  return (
    <>
      <h1>
        Conversation <span class="hash">{shortId(sums.id, 12)}</span>
      </h1>
      <Answer data={data} />
      <dl class="figures row">
        <Figure label="turns" value={`${count(sums.num_turns)}${isBranched ? ", it branches" : ""}`} />
        <Figure label="prompt tokens" value={count(sums.prompt_tokens)} />
        <Figure
          label="from cache"
          value={
            <SplitBar
              split={{
                prompt: sums.prompt_tokens,
                gpu: sums.gpu_hit_tokens,
                cpu: sums.cpu_hit_tokens,
                restored: sums.restored_hit_tokens,
                lost: sums.lost_tokens,
              }}
            />
          }
        />
        <Figure label="began" value={exact(sums.first_wall_ns)} />
        <Figure label="last turn" value={<Ago ns={sums.last_wall_ns} />} />
        {sums.session_id && <Figure label="session" value={<span class="hash">{sums.session_id}</span>} />}
      </dl>
      <Panel
        title="Turn by turn"
        tools={<TakeAway path={`/conversations/${encodeURIComponent(sums.id)}`} params={{}} what="The turns" />}
      >
        <Turns data={data} />
      </Panel>
    </>
  );
}

function Answer({ data: { conversation: sums, turns } }: { data: ConversationDetail }) {
  const lost = turns.filter((turn) => lostFrom(turn) !== null);
  const worst = lost.reduce<Turn | null>(
    (a, b) => ((a?.request.lost_tokens ?? -1) >= (b.request.lost_tokens ?? 0) ? a : b),
    null,
  );
  return (
    <p class="sentence" data-testid="answer">
      <b>{percent(sums.hit_rate)}</b> of its prompt tokens came from cache.{" "}
      {worst === null ? (
        <>No turn lost what an earlier one had computed.</>
      ) : (
        <>
          {lost.length === 1 ? "One turn" : `${count(lost.length)} turns`} lost the prefix
          {sums.lost_tokens > 0 && <>, {plural(sums.lost_tokens, "token")} in all</>}; most at turn{" "}
          <a href={href("request", worst.request.request_id)}>{worst.turn}</a>, at block {lostFrom(worst)}
          {worst.request.cause && <>: {wordsOf(worst)}</>}.
        </>
      )}
    </p>
  );
}

/** Where a turn lost its prefix: inside the blocks of the turn before it, or where what it lost begins. */
function lostFrom({ lost_from_index, request }: Turn): number | null {
  return lost_from_index ?? (request.lost_tokens ? request.cut_index : null);
}

/** Where the lookup ended inside what the turn before had, at a block that nobody had computed: nothing was lost. */
function harmlessCut({ lost_from_index, shared_blocks, request }: Turn): number | null {
  const cut = request.cut_index;
  return cut !== null && cut < shared_blocks && lost_from_index === null && !request.lost_tokens ? cut : null;
}

const wordsOf = ({ request }: Turn) =>
  cutWords({
    cause: request.cause,
    detail: request.cause_detail,
    sinceNs: request.since_ns,
    byRequestId: request.by_request_id,
  });

function Turns({ data: { turns, hash_block_size: size } }: { data: ConversationDetail }) {
  const longest = Math.max(1, ...turns.map(({ request }) => request.prompt_tokens));
  return (
    <Scroll label="Turns">
      <table class="turns-table">
        <thead>
          <tr>
            <th scope="col" class="right">
              turn
            </th>
            <th scope="col">request</th>
            <th scope="col" class="right">
              prompt
            </th>
            <th scope="col" class="bar-cell long">
              where it came from, and where the prefix was lost
            </th>
            <th scope="col" class="right">
              hit
            </th>
            <th scope="col">why the lookup ended</th>
            <th scope="col" class="right">
              lost
            </th>
            <th scope="col" class="right wide">
              TTFT
            </th>
            <th scope="col" class="right">
              started
            </th>
          </tr>
        </thead>
        <tbody>
          {turns.map((turn) => (
            <Row key={turn.request.seq} turn={turn} longest={longest} blockTokens={size} />
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Row({ turn, longest, blockTokens }: { turn: Turn; longest: number; blockTokens: number }) {
  const { request } = turn;
  const lost = lostFrom(turn);
  const harmless = harmlessCut(turn);
  const mark = lost ?? harmless;
  const { gpu_hit_tokens: gpu, cpu_hit_tokens: cpu, prompt_tokens: prompt } = request;
  const split =
    gpu === null || cpu === null
      ? null
      : { prompt, gpu, cpu, restored: request.restored_hit_tokens ?? 0, lost: request.lost_tokens ?? 0 };
  return (
    <tr>
      <th scope="row" class="right">
        {turn.turn}
      </th>
      <td>
        <RequestLink id={request.request_id} />
        {turn.by_session && <span class="muted"> by session</span>}
      </td>
      <td class="right">{count(prompt)}</td>
      <td class="bar-cell long">
        <span class="scaled" style={{ width: `${((prompt / longest) * 100).toFixed(2)}%` }}>
          <SplitBar split={split} />
          {mark !== null && (
            <i
              class={lost === null ? "cut-at harmless" : "cut-at"}
              aria-hidden="true"
              style={{ left: `${Math.min(100, ((mark * blockTokens) / prompt) * 100).toFixed(2)}%` }}
            />
          )}
        </span>
      </td>
      <td class="right">{split ? percent(ratio(split.gpu + split.cpu, prompt)) : NONE}</td>
      <td>
        {request.cause ? (
          <>
            <CauseMark cause={request.cause} /> {wordsOf(turn)}
            {request.cut_index !== null && <span class="muted">, block {count(request.cut_index)}</span>}
            {harmless !== null && <span class="muted">; nothing was lost</span>}
          </>
        ) : (
          <span class="muted">
            {request.gpu_hit_tokens === null ? "not looked up yet" : "nothing was left to find"}
          </span>
        )}
      </td>
      <td class="right">{request.lost_tokens ? count(request.lost_tokens) : NONE}</td>
      <td class="right wide">{duration(request.ttft_ns)}</td>
      <td class="right" title={exact(request.started_wall_ns, true)}>
        {clock(request.started_wall_ns)}
      </td>
    </tr>
  );
}
