// The line at the top of every view: what is watched, the views, the connection, the range, light or dark.
import { ago, duration, exact, plural } from "../lib/format";
import { RANGES } from "../lib/range";
import { listOf, type View } from "../lib/route";
import { forgetKey, hasKey } from "../state/access";
import { nowMs } from "../state/clock";
import { connection, lostReason, lostSinceMs } from "../state/live";
import { href, range, route, setParams } from "../state/location";
import { engines, isLive, liveEngines, logSpan, mainEngine } from "../state/log";
import { isAlone } from "../state/server";
import { flipTheme, isDark } from "../state/theme";

const VIEWS: readonly { view: View; label: string }[] = [
  { view: "now", label: "Overview" },
  { view: "misses", label: "Misses" },
  { view: "benefit", label: "Benefit" },
  { view: "whatif", label: "What-if" },
  { view: "tier", label: "Tier" },
  { view: "conversations", label: "Conversations" },
  { view: "requests", label: "Requests" },
  { view: "policy", label: "Policy" },
  { view: "engines", label: "Engines" },
  { view: "chat", label: "Chat" },
];

/** The views that show a piece of time. */
const RANGED: readonly View[] = ["now", "misses", "benefit", "whatif"];

export function Header() {
  const here = listOf(route.value.view);
  return (
    <header class="top">
      <a class="name" href={href("now")}>
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
          <rect x="0" y="3" width="4.4" height="10" class="svg-gpu" />
          <rect x="5.8" y="3" width="4.4" height="10" class="svg-restored" />
          <rect x="11.6" y="3" width="4.4" height="10" class="svg-cpu" />
        </svg>
        vllm-restore
      </a>
      <Watched />
      <nav aria-label="Views">
        {VIEWS.filter(({ view }) => view !== "chat" || !isAlone.value).map(({ view, label }) => (
          <a key={view} href={href(view)} aria-current={here === view ? "page" : undefined}>
            {label}
          </a>
        ))}
      </nav>
      <span class="push" />
      <Status />
      {RANGED.includes(here) && <RangePicker />}
      {hasKey.value && (
        <button type="button" class="quiet" onClick={forgetKey}>
          forget key
        </button>
      )}
      <button
        type="button"
        class="quiet theme"
        onClick={flipTheme}
        aria-label={`Switch to ${isDark.value ? "light" : "dark"}`}
      >
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
          <circle cx="8" cy="8" r="6.25" fill="none" stroke="currentColor" stroke-width="1.5" />
          <path d="M8 1.75a6.25 6.25 0 0 1 0 12.5z" fill="currentColor" />
        </svg>
      </button>
    </header>
  );
}

/** The model and the engine that the numbers are about. */
function Watched() {
  const engine = mainEngine.value;
  if (!engine) return null;
  const model = engine.model.split("/").at(-1);
  const others = liveEngines.value.length;
  const name = others > 1 ? plural(others, "engine") : `engine ${engine.dp_index}`;
  return (
    <span class="watched">
      <b title={engine.model}>{model}</b>
      <a href={href("engines")}>{name}</a>
      {engine.is_live && (
        <span title={`since ${exact(engine.started_wall_ns)}`}>
          up {duration(nowMs.value * 1e6 - engine.started_wall_ns)}
        </span>
      )}
    </span>
  );
}

/** Whether what is on screen is what is going on. */
function Status() {
  const { sign, text, title } = statusOf();
  return (
    <span class={`status status-${sign}`} role="status" title={title}>
      <i aria-hidden="true" />
      {text}
    </span>
  );
}

function statusOf(): { sign: string; text: string; title: string } {
  const lost = lostSinceMs.value;
  if (connection.value === "lost" && lost !== null) {
    const age = duration(Math.max(0, nowMs.value - lost) * 1e6);
    return { sign: "lost", text: `connection lost ${age} ago, trying again`, title: lostReason.value ?? "" };
  }
  if (connection.value !== "open") return { sign: "wait", text: "connecting", title: "" };
  if (isLive.value) return { sign: "live", text: "live", title: "An engine writes the log and this page follows it" };
  if (engines.data.value === null) return { sign: "wait", text: "connecting", title: "" };
  const endMs = logSpan.value?.endMs;
  if (endMs === undefined || endMs === null) return { sign: "idle", text: "waiting for an engine", title: "" };
  const end = ago(endMs * 1e6, nowMs.value);
  return { sign: "idle", text: `no engine, log ends ${end}`, title: exact(endMs * 1e6) };
}

function RangePicker() {
  const now = range.value;
  const known = RANGES.some(({ text }) => text === now.text);
  const isFixed = now.type === "fixed";
  return (
    <span class="range">
      <label>
        <select
          aria-label="Time range"
          value={now.text}
          onChange={(event) =>
            setParams({ range: event.currentTarget.value === "15m" ? null : event.currentTarget.value })
          }
        >
          {!known && (
            <option value={now.text}>
              {isFixed
                ? `${exact(now.sinceMs * 1e6).slice(5)} + ${duration((now.untilMs - now.sinceMs) * 1e6)}`
                : now.text}
            </option>
          )}
          {RANGES.map(({ text, label }) => (
            <option key={text} value={text}>
              {label}
            </option>
          ))}
        </select>
      </label>
      {isFixed && (
        <button type="button" onClick={() => setParams({ range: null })}>
          back to now
        </button>
      )}
    </span>
  );
}
