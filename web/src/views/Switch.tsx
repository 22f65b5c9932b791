// The re-store switch: what the engines obey, since which step, and the controls that ask for something else.
// It never shows a wish as a fact: until an engine has answered, what was asked for stands beside what holds.
import { useRef } from "preact/hooks";
import type { AppliedPolicy, PolicyBody, PolicyState } from "../api/types";
import { budgetText, policyLabel } from "../lib/events";
import { count, duration, exact } from "../lib/format";
import { href, route } from "../state/location";
import { policy, summary } from "../state/log";
import { change, isAsking, refusal } from "../state/switch";
import { Ago, Mark, Panel, Problem } from "./bits";
import { Gains } from "./Gains";

export function SwitchPanel() {
  const state = policy.data.value;
  return (
    <Panel
      title="Re-store"
      class="switch"
      tools={route.value.view !== "policy" && <a href={href("policy")}>history</a>}
    >
      <Problem what="The policy could not be read" error={policy.error.value} />
      {state && <Controls state={state} />}
      <Problem what="Not changed" error={refusal.value} />
      {route.value.view === "now" && <Gains />}
    </Panel>
  );
}

const canRestore = (engine: AppliedPolicy) => engine.restore_support === "yes";

/** What all live engines that can re-store obey: null where none has said so, "mixed" where they differ. */
function engineWord(state: PolicyState): PolicyBody | null | "mixed" {
  const words = state.engines.filter(canRestore).map((engine) => engine.applied);
  const first = words[0] ?? null;
  const isSame = words.every((word) => JSON.stringify(word) === JSON.stringify(first));
  return isSame ? first : "mixed";
}

function Controls({ state }: { state: PolicyState }) {
  const word = engineWord(state);
  const shown = word === null || word === "mixed" ? state.policy : word;
  const isOff = !state.can_change || isAsking.value;
  const isPending = state.engines.some((engine) => engine.is_pending);
  const budget = useRef<HTMLInputElement>(null);
  const setBudget = (event: Event) => {
    event.preventDefault();
    const field = budget.current;
    if (field?.value && field.validity.valid) void change({ max_restore_blocks_per_step: Number(field.value) });
  };
  return (
    <>
      <div class="control">
        <span id="switch-label">enabled</span>
        <button
          type="button"
          role="switch"
          class="toggle"
          aria-checked={shown.enabled}
          aria-labelledby="switch-label"
          aria-busy={isAsking.value || isPending}
          disabled={isOff}
          onClick={() => change({ enabled: !shown.enabled })}
        >
          <i aria-hidden="true" />
          <span>{shown.enabled ? "on" : "off"}</span>
        </button>
      </div>
      <div class="control">
        <span id="mode-label">mode</span>
        <span class="choice" role="radiogroup" aria-labelledby="mode-label">
          {(["tracked", "rescan"] as const).map((mode) => (
            <label key={mode} title={MODE_WORDS[mode]}>
              <input
                type="radio"
                name="mode"
                value={mode}
                checked={shown.mode === mode}
                disabled={isOff}
                onClick={(event) => {
                  // The mark moves when an engine says so, not with the click.
                  event.preventDefault();
                  if (mode !== shown.mode) void change({ mode });
                }}
              />
              <span>{mode}</span>
            </label>
          ))}
        </span>
      </div>
      <div class="control">
        <span id="retention-label">retention</span>
        <span class="choice" role="radiogroup" aria-labelledby="retention-label">
          {(["lru", "adaptive"] as const).map((retention) => (
            <label key={retention} title={RETENTION_WORDS[retention]}>
              <input
                type="radio"
                name="retention"
                value={retention}
                checked={shown.retention === retention}
                disabled={isOff}
                onClick={(event) => {
                  event.preventDefault();
                  if (retention !== shown.retention) void change({ retention });
                }}
              />
              <span>{retention}</span>
            </label>
          ))}
        </span>
      </div>
      <form class="control" onSubmit={setBudget}>
        <label for="budget">budget</label>
        <span class="budget">
          <input
            id="budget"
            ref={budget}
            type="number"
            min={0}
            max={1_000_000}
            step={1}
            key={shown.max_restore_blocks_per_step}
            defaultValue={String(shown.max_restore_blocks_per_step)}
            disabled={isOff}
            aria-describedby="budget-help"
          />
          <button type="submit" disabled={isOff}>
            set
          </button>
        </span>
      </form>
      <p class="help" id="budget-help">
        re-stored blocks a step, at most; 0 is no limit
      </p>
      <Answers state={state} word={word} />
    </>
  );
}

const MODE_WORDS = {
  tracked: "Looks only at blocks whose eviction was seen",
  rescan: "Walks every stored block of every running request in every step: the reference",
};

const RETENTION_WORDS = {
  lru: "vLLM's own order: the least recently used block goes",
  adaptive: "Chains give their ends first, by what reuse was learned; a new block may be refused",
};

/** The engines' word, a line each. */
function Answers({ state, word }: { state: PolicyState; word: PolicyBody | null | "mixed" }) {
  if (!state.can_change) {
    return (
      <p class="answer muted">
        A recorded log: no engine listens, so there is nothing to switch. Last asked for: {wish(state)}.
      </p>
    );
  }
  return (
    <ul class="answers" aria-label="What the engines answered" aria-live="polite">
      {isAsking.value && <li class="pending">asking…</li>}
      {state.engines.length === 0 && <li>No engine is running. The next one starts with {wish(state)}.</li>}
      {word === "mixed" && <li class="pending">The engines differ.</li>}
      {state.engines.map((engine) => (
        <Answer key={engine.engine_id} engine={engine} state={state} />
      ))}
      <li class="muted">
        {state.version === 0 ? (
          "v0: the built-in default"
        ) : (
          <>
            v{count(state.version)} asked <Ago ns={state.created_wall_ns} /> by {state.author}
          </>
        )}
      </li>
    </ul>
  );
}

function Answer({ engine, state }: { engine: AppliedPolicy; state: PolicyState }) {
  const name = `engine ${engine.dp_index}`;
  if (!canRestore(engine)) {
    return (
      <li>
        <span class="fault">
          <Mark tone="alarm">!</Mark> {name} obeys nothing: it cannot re-store: {engine.restore_support}
        </span>
      </li>
    );
  }
  const delay =
    engine.applied_version === state.version &&
    engine.reason === "toggle" &&
    state.created_wall_ns &&
    engine.applied_wall_ns
      ? engine.applied_wall_ns - state.created_wall_ns
      : null;
  return (
    <li>
      {engine.applied ? (
        <span title={engine.applied_wall_ns ? exact(engine.applied_wall_ns, true) : ""}>
          {name} obeys <b>{policyLabel(engine.applied)}</b>, {budgetText(engine.applied.max_restore_blocks_per_step)} (v
          {count(engine.applied_version)}) {sinceWords(engine)}
          {delay !== null && delay >= 0 && <>, {duration(delay)} after it was asked</>}
          {engine.reason === "toggle" && engine.is_idle && (
            <span class="muted">; no step was running, the next one obeys</span>
          )}
        </span>
      ) : (
        <span>{name} has not said anything yet</span>
      )}
      {engine.is_pending && (
        <span class="pending">
          <Mark tone="flight">…</Mark> v{count(state.version)} ({wish(state)}) not answered yet
        </span>
      )}
      {engine.reason === "fault" && (
        <span class="fault" role="alert">
          <Mark tone="alarm">!</Mark> re-store was turned off by itself after a fault:{" "}
          {summary.data.value?.last_fault ?? "see the feed"}
        </span>
      )}
    </li>
  );
}

function sinceWords(engine: AppliedPolicy): string {
  if (engine.reason === "start") return "since its start";
  return `${engine.is_idle ? "after" : "since"} step ${count(engine.applied_step)}`;
}

function wish(state: PolicyState): string {
  return `${policyLabel(state.policy)}, ${budgetText(state.policy.max_restore_blocks_per_step)}`;
}
