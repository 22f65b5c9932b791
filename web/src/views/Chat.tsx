// A chat with this server's model: each reply says how much of its prompt was cached and how long the first token took.
import { useEffect, useRef } from "preact/hooks";
import { count, duration, NONE, share } from "../lib/format";
import { attempts } from "../state/access";
import {
  findModels,
  isReplying,
  models,
  modelsError,
  send,
  startOver,
  stopReply,
  type Turn,
  turns,
} from "../state/chat";
import { href, route, setParams } from "../state/location";
import { health, isAlone } from "../state/server";
import { Mark, Problem } from "./bits";

export function ChatView() {
  const tries = attempts.value;
  const isKnown = health.data.value !== null || health.error.value !== null;
  useEffect(() => {
    if (isKnown && !isAlone.value) void findModels();
  }, [tries, isKnown, isAlone.value]);
  const known = isAlone.value ? null : models.value;
  return (
    <main class="view chat" id="main">
      <h1>Chat</h1>
      <Problem what="The models could not be read" error={modelsError.value} />
      {known === null ? (
        <p>
          This server shows a recorded log: it has no <code>/v1</code> routes and so no model to talk to. Start one with{" "}
          <code>make serve</code> and open its dashboard.
        </p>
      ) : known === undefined ? (
        !modelsError.value && <p class="muted">Asking for the model…</p>
      ) : known.length === 0 ? (
        <p>The server names no model.</p>
      ) : (
        <Conversation known={known} />
      )}
    </main>
  );
}

function Conversation({ known }: { known: readonly string[] }) {
  const wanted = route.value.params.model;
  const model = wanted && known.includes(wanted) ? wanted : (known[0] ?? "");
  const field = useRef<HTMLTextAreaElement>(null);
  const limit = useRef<HTMLInputElement>(null);
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => end.current?.scrollIntoView({ block: "nearest" }), [turns.value]);
  const submit = (event: Event) => {
    event.preventDefault();
    const text = field.current?.value.trim();
    if (!text || !field.current || isReplying.value) return;
    void send(text, model, Math.max(1, Number(limit.current?.value) || 64));
    field.current.value = "";
  };
  return (
    <>
      <p class="muted">
        Every turn sends the whole conversation again, so from the second turn on most of the prompt should come from
        cache.
      </p>
      <ol class="turns" aria-label="Conversation">
        {turns.value.map((turn) => (
          <TurnItem key={turn.key} turn={turn} />
        ))}
      </ol>
      <div ref={end} />
      <form class="ask" onSubmit={submit}>
        <textarea
          ref={field}
          rows={3}
          aria-label="Your message"
          placeholder="Your message; Enter sends, Shift+Enter is a new line"
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
          }}
        />
        <div class="tools">
          <label>
            model{" "}
            <select value={model} onChange={(event) => setParams({ model: event.currentTarget.value }, true)}>
              {known.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
          <label>
            at most <input ref={limit} type="number" min={1} max={4096} defaultValue="64" /> tokens
          </label>
          <span class="push" />
          {turns.value.length > 0 && (
            <button type="button" onClick={startOver}>
              start over
            </button>
          )}
          {isReplying.value ? (
            <button type="button" onClick={stopReply}>
              stop
            </button>
          ) : (
            <button type="submit" class="main">
              send
            </button>
          )}
        </div>
      </form>
    </>
  );
}

function TurnItem({ turn }: { turn: Turn }) {
  const isReply = turn.role === "assistant";
  return (
    <li class={`turn turn-${turn.role}`}>
      <b>{isReply ? "model" : "you"}</b>
      <div class="said">{turn.content || (isReply && !turn.error ? <span class="muted">…</span> : "")}</div>
      {turn.error && (
        <p class="note alarm" role="alert">
          <Mark tone="alarm">!</Mark> {turn.error}
        </p>
      )}
      {isReply && turn.usage && <Cost turn={turn} />}
    </li>
  );
}

function Cost({ turn: { usage, ttftNs, requestId } }: { turn: Turn }) {
  if (!usage) return null;
  const { promptTokens, cachedTokens, outputTokens } = usage;
  return (
    <p class="cost" data-testid="cost">
      {cachedTokens === null ? (
        <span>
          {count(promptTokens)} prompt tokens; the server does not say how many were cached
          (--enable-prompt-tokens-details)
        </span>
      ) : (
        <>
          <CachedBar cached={cachedTokens} prompt={promptTokens} />
          <span>
            <b>{count(cachedTokens)}</b> of {count(promptTokens)} prompt tokens cached (
            {share(cachedTokens, promptTokens)})
          </span>
        </>
      )}
      <span>TTFT {ttftNs === null ? NONE : duration(ttftNs)}</span>
      <span>{count(outputTokens)} out</span>
      {requestId && <a href={href("request", requestId)}>its blocks</a>}
    </p>
  );
}

/** The usage does not say which tier the tokens came from, so the bar is in ink and not in a tier's colour. */
function CachedBar({ cached, prompt }: { cached: number; prompt: number }) {
  const part = (tokens: number) => `${((tokens / Math.max(1, prompt)) * 100).toFixed(2)}%`;
  return (
    <span class="split" aria-hidden="true">
      <i class="fill-ink" style={{ width: part(cached) }} />
      <i class="fill-computed" style={{ width: part(prompt - cached) }} />
    </span>
  );
}
