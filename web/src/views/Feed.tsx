// The feed: what the engine just did, newest first, with a filter by kind, a search and a pause.
import { useEffect, useRef } from "preact/hooks";
import type { EventRow } from "../api/types";
import { engineMark, engineWords } from "../lib/engines";
import { describe, KINDS, kindOf } from "../lib/events";
import { clock, count, exact, plural } from "../lib/format";
import { FEED_ROWS, find, frozen, kinds, numHeldBack, shown, togglePause } from "../state/feed";
import { connection } from "../state/live";
import { href, setParams } from "../state/location";
import { engines, liveEngines } from "../state/log";
import { KindMark, Mark, Panel, RequestLink } from "./bits";

export function Feed() {
  return (
    <Panel title="Feed" class="feed" tools={<Tools />}>
      <EventList events={shown.value} empty={emptyWords()} />
      {shown.value.length >= FEED_ROWS && <p class="muted">The newest {count(FEED_ROWS)} that match.</p>}
    </Panel>
  );
}

function emptyWords(): string {
  if (kinds.value !== null || find.value !== "")
    return "Nothing in the newest rows matches. Clear the filter to see all.";
  return connection.value === "open" ? "Nothing has happened yet." : "Reading the newest rows…";
}

function Tools() {
  return (
    <span class="tools">
      <KindMenu />
      <input
        type="search"
        class="find"
        placeholder="find request or hash"
        aria-label="Find a request or a hash in the feed"
        value={find.value}
        onInput={(event) => setParams({ find: event.currentTarget.value }, true)}
      />
      <button type="button" aria-pressed={frozen.value !== null} onClick={togglePause}>
        {frozen.value === null ? "pause" : `resume${numHeldBack.value ? `, ${count(numHeldBack.value)} new` : ""}`}
      </button>
    </span>
  );
}

/** Which kinds are shown: a menu of check boxes that closes when one looks elsewhere. */
function KindMenu() {
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const element = menu.current;
      if (!element?.open) return;
      const isKey = event instanceof KeyboardEvent;
      if (isKey ? event.key === "Escape" : !element.contains(event.target as Node)) {
        element.open = false;
        if (isKey) element.querySelector("summary")?.focus();
      }
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, []);
  const chosen = kinds.value;
  const toggle = (name: string) => {
    const next = new Set(chosen ?? []);
    if (!next.delete(name)) next.add(name);
    setParams({ kind: [...next].join(",") }, true);
  };
  const label =
    chosen === null
      ? "all kinds"
      : chosen.size === 1
        ? kindOf([...chosen][0] ?? "").label
        : plural(chosen.size, "kind");
  return (
    <details class="menu" ref={menu}>
      <summary>{label}</summary>
      <div>
        <button type="button" onClick={() => setParams({ kind: null }, true)}>
          show all
        </button>
        {Object.entries(KINDS).map(([name, kind]) => (
          <label key={name}>
            <input type="checkbox" checked={chosen?.has(name) ?? false} onChange={() => toggle(name)} />
            <Mark tone={kind.tone}>{kind.mark}</Mark>
            {kind.label}
          </label>
        ))}
      </div>
    </details>
  );
}

/** Rows of the log, newest first. `isDated`: with the time of day. Which engine's each is, where there are several. */
export function EventList({
  events,
  empty,
  isDated = false,
}: {
  events: readonly EventRow[];
  empty: string;
  isDated?: boolean;
}) {
  if (events.length === 0) return <p class="muted">{empty}</p>;
  const known = engines.data.value ?? [];
  const hasEngines = liveEngines.value.length > 1 || events.some(({ engine_id }) => engine_id !== events[0]?.engine_id);
  const look = `events${isDated ? " dated" : ""}${hasEngines ? " of-engines" : ""}`;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls has to be reachable by keyboard
    <section class="scroll" tabIndex={0} aria-label="Events, newest first">
      <ol class={look}>
        {events.map((event) => (
          <li key={event.seq} title={`${exact(event.wall_ns, true)}, row ${event.seq}`}>
            {hasEngines && (
              <a class="engine" href={href("engines")} title={engineWords(event.engine_id, known)}>
                {engineMark(event.engine_id, known)}
              </a>
            )}
            <span class="step">{isDated ? clock(event.wall_ns, true) : count(event.step)}</span>
            <KindMark event={event} />
            <span class="kind">{kindOf(event.kind).label}</span>
            <span class="who">{event.request_id && <RequestLink id={event.request_id} />}</span>
            <span class="what">{describe(event)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
