// Conversations: requests that go on from one another. The list, and the hit rate by turn over all of them.
import type { ConversationPage, ConversationRow, TurnRate } from "../api/types";
import { clock, count, exact, NONE, percent, plural, shortId } from "../lib/format";
import { CONVERSATION_ROWS, conversations } from "../state/evidence";
import { href, hrefHere, route } from "../state/location";
import { Ago, Panel, Problem, Scroll, SplitBar, splitOf } from "./bits";
import { TakeAway } from "./charts";

export function ConversationsView() {
  const data = conversations.data.value;
  const { before } = route.value.params;
  return (
    <main class="view" id="main">
      <h1>Conversations</h1>
      <Problem what="The conversations could not be read" error={conversations.error.value} />
      {data === null ? (
        !conversations.error.value && <p class="muted">Reading the conversations…</p>
      ) : data.num_conversations === 0 ? (
        <p class="sentence">No request has come yet, so there is no conversation.</p>
      ) : (
        <>
          <Answer data={data} />
          <ByTurn rows={data.by_turn} />
          <Panel
            title="Most recently active first"
            tools={
              <TakeAway
                path="/conversations"
                params={{ limit: CONVERSATION_ROWS, before }}
                what="These conversations"
              />
            }
          >
            <Table rows={data.conversations} />
            <nav class="pages" aria-label="Pages">
              {before && <a href={hrefHere({ before: null })}>newest</a>}
              {data.next_before !== null && <a href={hrefHere({ before: String(data.next_before) })}>older</a>}
            </nav>
          </Panel>
          {data.first_seq !== null && (
            <p class="muted">
              There are too many requests to group them all: those before row {count(data.first_seq)} of the log are
              left out.
            </p>
          )}
        </>
      )}
    </main>
  );
}

/** The answer first: do later turns find what earlier ones computed? */
function Answer({ data }: { data: ConversationPage }) {
  const first = data.by_turn.find(({ turn }) => turn === 1);
  const later = data.by_turn.filter(({ turn }) => turn > 1);
  const sum = (pick: (row: TurnRate) => number) => later.reduce((total, row) => total + pick(row), 0);
  const prompt = sum((row) => row.prompt_tokens);
  if (prompt === 0) {
    return (
      <p class="sentence">
        {plural(data.num_conversations, "conversation")}, none with a second turn: no request goes on where another one
        ended.
      </p>
    );
  }
  const hits = sum((row) => row.gpu_hit_tokens + row.cpu_hit_tokens);
  return (
    <p class="sentence" data-testid="answer">
      In {plural(data.num_conversations, "conversation")}, turns after the first found <b>{percent(hits / prompt)}</b>{" "}
      of their prompt in a cache, first turns {percent(first?.hit_rate)}.{" "}
      {sum((row) => row.lost_tokens) > 0 && (
        <>
          <a href={href("misses", null, { range: "all" })}>
            {plural(
              sum((row) => row.lost_tokens),
              "token",
            )}
          </a>{" "}
          that an earlier turn had computed were computed again.
        </>
      )}
    </p>
  );
}

const MOST_TURNS = 24;

/** Hit rate by turn number: one column a turn, its sources stacked. */
function ByTurn({ rows }: { rows: readonly TurnRate[] }) {
  const shown = rows.slice(0, MOST_TURNS);
  return (
    <Panel
      title="Where prompts came from, by turn"
      tools={<TakeAway path="/conversations" params={{ table: "by_turn" }} what="Hit rate by turn" />}
    >
      <Scroll label="Hit rate by turn">
        <table class="by-turn">
          <thead>
            <tr>
              <th scope="col" class="right">
                turn
              </th>
              <th scope="col" class="right">
                how many
              </th>
              <th scope="col" class="bar-cell">
                GPU, CPU, computed
              </th>
              <th scope="col" class="right">
                hit rate
              </th>
              <th scope="col" class="right">
                lost tokens
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={row.turn}>
                <th scope="row" class="right">
                  {row.turn}
                </th>
                <td class="right">{count(row.num_turns)}</td>
                <td class="bar-cell long">
                  <SplitBar split={splitOf(row)} />
                </td>
                <td class="right">{percent(row.hit_rate)}</td>
                <td class="right">{row.lost_tokens > 0 ? count(row.lost_tokens) : NONE}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {rows.length > MOST_TURNS && (
        <p class="muted">Later turns, up to the {count(rows.at(-1)?.turn)}th, are in the files.</p>
      )}
    </Panel>
  );
}

function Table({ rows }: { rows: readonly ConversationRow[] }) {
  if (rows.length === 0) return <p class="muted">No older conversation.</p>;
  return (
    <Scroll label="Table of conversations">
      <table class="requests">
        <thead>
          <tr>
            <th scope="col">first request</th>
            <th scope="col" class="wide">
              session
            </th>
            <th scope="col" class="right">
              turns
            </th>
            <th scope="col" class="right">
              prompt tokens
            </th>
            <th scope="col" class="bar-cell">
              cached
            </th>
            <th scope="col" class="right">
              hit
            </th>
            <th scope="col" class="right">
              lost tokens
            </th>
            <th scope="col" class="right" title="Turns whose lookup was cut inside what an earlier turn had computed">
              lost its prefix
            </th>
            <th scope="col" class="right">
              last turn
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id} onClick={(event) => open(event, row.id)}>
              <th scope="row">
                <a class="hash" href={href("conversation", row.id)} title={row.id}>
                  {shortId(row.id)}
                </a>
              </th>
              <td class="wide hash clip">{row.session_id ?? NONE}</td>
              <td class="right">{count(row.num_turns)}</td>
              <td class="right">{count(row.prompt_tokens)}</td>
              <td class="bar-cell">
                <SplitBar split={splitOf(row)} />
              </td>
              <td class="right">{percent(row.hit_rate)}</td>
              <td class="right">{row.lost_tokens > 0 ? count(row.lost_tokens) : NONE}</td>
              <td class="right">{row.num_lost_prefixes > 0 ? `${count(row.num_lost_prefixes)}×` : NONE}</td>
              <td class="right" title={exact(row.last_wall_ns, true)}>
                <span class="wide">{clock(row.last_wall_ns)} </span>
                <span class="muted">
                  <Ago ns={row.last_wall_ns} />
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** The whole row leads there; the link in it is what a keyboard and a screen reader use. */
function open(event: MouseEvent, id: string): void {
  if ((event.target as Element).closest("a") || window.getSelection()?.toString()) return;
  window.location.hash = href("conversation", id);
}
