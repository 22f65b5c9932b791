// Which block goes for a new one: the rule that the tier goes by and why, both shadows of the guard, the learned curve.
import type { RetentionState, RetentionView } from "../api/types";
import { Curve } from "../draw/Curve";
import { count, exact, plural } from "../lib/format";
import { idleWords, points, ruleName, ruleReason, switchWords, worthLines } from "../lib/retention";
import { retention, tierParams } from "../state/evidence";
import { href } from "../state/location";
import { engines } from "../state/log";
import { Ago, Figure, Meter, Panel, Problem } from "./bits";
import { TakeAway, useWidth } from "./charts";

const SWITCHES_SHOWN = 5;

export function RetentionPanel() {
  const data = retention.data.value;
  const params = { engine: tierParams.value.engine, table: "classes" };
  return (
    <Panel
      title="Which block goes for a new one"
      class="retention"
      tools={<TakeAway path="/retention" params={params} what="What was learned" />}
    >
      <Problem what="What the tier goes by could not be read" error={retention.error.value} />
      {data === null ? (
        !retention.error.value && <p class="muted">Reading the rule…</p>
      ) : data.since_wall_ns === null ? (
        <NotInForce data={data} />
      ) : data.state === null ? (
        <p>
          <code>adaptive</code> is in force since {exact(data.since_wall_ns)}, and has said nothing yet. It speaks with
          the engine's next step; if it stays silent the model does not suit it, and the server's log says why.
        </p>
      ) : (
        <>
          <Answer data={data} state={data.state} />
          <Found data={data} state={data.state} />
          <Learned state={data.state} />
          <Switches data={data} />
        </>
      )}
    </Panel>
  );
}

function NotInForce({ data: { retention: obeyed, state } }: { data: RetentionView }) {
  return (
    <>
      <p data-testid="rule">
        {obeyed === null ? (
          "The engine has not said yet what it obeys."
        ) : (
          <>
            Blocks go in <b>vLLM's own order</b>, the least recently used first, and every new one comes in.
          </>
        )}{" "}
        Under <code>adaptive</code> there stand here: the rule that it goes by and why, what its guard's two shadows
        found, and what it has learned of when chains come back. <a href={href("policy")}>Switch retention</a> to see
        it.
      </p>
      {state !== null && (
        <>
          <p class="muted">
            What it had learned when it was last in force, <Ago ns={state.wall_ns} />:
          </p>
          <Learned state={state} />
        </>
      )}
    </>
  );
}

/** The answer first: by which rule, since when, why. */
function Answer({ data, state }: { data: RetentionView; state: RetentionState }) {
  const isLive = engines.data.value?.find(({ id }) => id === data.engine_id)?.is_live ?? false;
  return (
    <p data-testid="rule">
      Blocks go <b>{ruleName(data.rule)}</b>
      {data.rule_since_wall_ns !== null && (
        <>
          {" "}
          since {exact(data.rule_since_wall_ns)} (<Ago ns={data.rule_since_wall_ns} />)
        </>
      )}
      : {ruleReason(data.rule, state)}.{" "}
      <span class="muted">
        {isLive ? "It said so" : "The engine is gone; it said so"} <Ago ns={state.wall_ns} />.
      </span>
    </p>
  );
}

/** Both shadows side by side, over the same requests; and what came of the rule. */
function Found({ data, state }: { data: RetentionView; state: RetentionState }) {
  const meter = (rate: number | null, label: string) => (
    <>
      <Meter value={rate ?? 0} max={1} label={label} /> {points(rate)}
    </>
  );
  return (
    <dl class="figures row">
      <Figure label="shadow by last use found" value={meter(state.lru_hit_rate, "shadow by last use")} />
      <Figure label="shadow by worth found" value={meter(state.worth_hit_rate, "shadow by worth")} />
      <Figure label="of what was asked for of late" value={plural(Math.round(state.asked_blocks), "block")} />
      <Figure
        label="evicted since it is in force"
        value={`${count(data.evicted_blocks)}, ${count(data.evicted_by_worth_blocks)} by worth`}
      />
      <Figure
        label="began to be refused"
        value={<a href={href("now", null, { kind: "stores_refused" })}>{plural(data.num_refusals ?? 0, "time")}</a>}
      />
    </dl>
  );
}

function Learned({ state }: { state: RetentionState }) {
  const [box, width] = useWidth();
  const { lines, unseen } = worthLines(state);
  return (
    <div ref={box} class="by-class">
      {lines.length === 0 ? (
        <p class="muted">Nothing came back yet, so there is no curve: every chain counts the same.</p>
      ) : (
        <>
          <Curve
            lines={lines}
            width={width}
            height={width < 640 ? 230 : 280}
            label="What keeping a chain is worth over the time since it was asked for, a line a class"
            xLabel={idleWords}
          />
          <p class="muted axis-name">
            what keeping a chain is worth (100&nbsp;%: it comes back at once, 0&nbsp;%: never) over the time since it
            was last asked for, by how often it was
            {unseen.length > 0 && `; too few of these came back to tell them apart: ${unseen.join(", ")}`}
          </p>
        </>
      )}
    </div>
  );
}

function Switches({ data: { switches, num_switches: all } }: { data: RetentionView }) {
  if (switches.length === 0) return null;
  return (
    <>
      <p id="rule-switches">Changes of rule, newest first:</p>
      <ul class="notes" aria-labelledby="rule-switches">
        {switches.slice(0, SWITCHES_SHOWN).map((change) => (
          <li key={change.seq}>
            {exact(change.wall_ns)} {switchWords(change)}
          </li>
        ))}
      </ul>
      {(all ?? 0) > SWITCHES_SHOWN && (
        <p>
          <a href={href("now", null, { kind: "rule_switched" })}>all {count(all)}</a>
        </p>
      )}
    </>
  );
}
