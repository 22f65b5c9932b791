// What another policy, or a tier of another size, would have done with the same traffic: the curve, how far to trust it,
// and a form that asks for other policies and sizes.
import { windowParams } from "../api/client";
import type { CurveRow, Shadows, WhatIf, WhatIfRow } from "../api/types";
import { Curve } from "../draw/Curve";
import { bytes, count, NONE, percent } from "../lib/format";
import { curveLines, kneeOf, points, sizeWords } from "../lib/whatif";
import { shadows, whatIf, whatIfParams } from "../state/evidence";
import { currentWindow, mainEngine } from "../state/log";
import { Mark, Panel, Problem, rangeWords, Scroll } from "./bits";
import { TakeAway, useWidth } from "./charts";
import { LineSwatch } from "./ShadowKeys";
import { AskForm } from "./WhatIfForm";

export function WhatIfView() {
  const data = shadows.data.value;
  return (
    <main class="view" id="main">
      <h1>What if</h1>
      <Problem what="The shadows could not be read" error={shadows.error.value} />
      {data === null ? (
        !shadows.error.value && <p class="muted">Reading the shadows…</p>
      ) : data.unsupported !== null ? (
        <p class="sentence">There are no shadows of this engine's tier: {data.unsupported}</p>
      ) : (
        <>
          <Answer data={data} />
          <Panel
            title="Hit rate by size of the CPU tier"
            tools={<TakeAway path="/shadows" params={windowParams(currentWindow())} what="The shadows" />}
          >
            <CurveOf rows={data.curve} />
            <CurveTable rows={data.curve} truth={data.hit_rate} label="Hit rate by policy and size" />
          </Panel>
          <Trust data={data} />
        </>
      )}
      {data?.unsupported === null && (
        <Panel title="Other policies and sizes, over the whole log" class="ask-what-if">
          <AskForm />
          <Problem what="Not computed" error={whatIf.error.value} />
          {whatIf.data.value ? (
            <Asked data={whatIf.data.value} />
          ) : (
            whatIfParams.value.cpu_gib !== null &&
            whatIf.error.value === null && (
              <p class="muted">Playing the whole log, which takes some seconds a hundred thousand rows…</p>
            )
          )}
        </Panel>
      )}
    </main>
  );
}

/** The answer first: what the other policy and what twice the size would give. */
function Answer({ data }: { data: Shadows }) {
  const blocks = mainEngine.value?.num_cpu_blocks;
  const rate = (policy: string, factor: number) =>
    data.curve.find((row) => row.policy === policy && row.cpu_blocks === Math.round((blocks ?? 0) * factor))?.hit_rate;
  const endless = data.shadows.find(({ policy }) => policy === "unlimited")?.hit_rate;
  const knee = kneeOf(data.curve, "tracked");
  if (data.hit_rate === null) {
    return <p class="sentence">No prompt was looked up {rangeWords()}: there is nothing to compare.</p>;
  }
  return (
    <p class="sentence" data-testid="answer">
      The engine found <b>{percent(data.hit_rate)}</b> of its prompt tokens {rangeWords()}. Without re-store a tier of
      this size would give <b>{percent(rate("off", 1))}</b>, with it <b>{percent(rate("tracked", 1))}</b>; a tier twice
      as large <b>{percent(rate("tracked", 2))}</b>
      {endless !== undefined && (
        <>
          , an endless one <b>{percent(endless)}</b>
        </>
      )}
      .{knee?.cpu_bytes && <> From {bytes(knee.cpu_bytes)} on, more hardly helps.</>}
      {!data.is_caught_up && <span class="muted"> The shadows are still reading the log.</span>}
    </p>
  );
}

function CurveOf({ rows }: { rows: readonly CurveRow[] }) {
  const [box, width] = useWidth();
  const engine = mainEngine.value;
  const here = engine ? engine.num_cpu_blocks * engine.block_bytes : null;
  return (
    <div ref={box}>
      <Curve
        lines={curveLines(rows)}
        width={width}
        height={width < 640 ? 230 : 300}
        label="Hit rate over the size of the CPU tier, a line a policy"
        xLabel={(size) => bytes(size)}
        here={here ? { x: here, words: "as it is" } : undefined}
      />
    </div>
  );
}

/** Hit rates by policy and size. What was played from a log says how much was copied, too. */
function CurveTable({
  rows,
  truth,
  label,
}: {
  rows: readonly (CurveRow | WhatIfRow)[];
  truth: number | null;
  label: string;
}) {
  const isPlayed = rows.some((row) => "stored_blocks" in row);
  const heads = ["CPU tier", "hit rate", "against the engine's own", ...(isPlayed ? ["stored", "re-stored"] : [])];
  return (
    <Scroll label={label}>
      <table class="by-turn">
        <thead>
          <tr>
            <th scope="col">policy</th>
            {heads.map((head) => (
              <th key={head} scope="col" class="right">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.policy} ${row.cpu_blocks}`}>
              <th scope="row">
                <LineSwatch policy={row.policy} /> {row.policy}
              </th>
              <td class="right">{sizeWords(row)}</td>
              <td class="right">
                <b>{percent(row.hit_rate)}</b>
              </td>
              <td class="right">{points(row.hit_rate, truth)}</td>
              {"stored_blocks" in row && <td class="right">{count(row.stored_blocks)}</td>}
              {"stored_blocks" in row && (
                <td class="right">{row.restored_blocks > 0 ? count(row.restored_blocks) : NONE}</td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** How far to trust all this: the shadow of what was really obeyed, against what the engine really found. */
function Trust({ data }: { data: Shadows }) {
  const { error } = data;
  const off = error?.percentage_points ?? null;
  return (
    <Panel title="How far to trust it">
      <p data-testid="trust">
        {off === null ? (
          "The shadow of the policy that is obeyed has nothing to be compared with yet."
        ) : (
          <>
            <Mark tone={Math.abs(off) <= 1 ? "gpu" : "lost"}>{Math.abs(off) <= 1 ? "✓" : "!"}</Mark> The shadow of the
            policy that was obeyed is <b>{Math.abs(off).toFixed(2)} percentage points</b> from what the engine found
            {error?.worst_percentage_points != null && (
              <>, {Math.abs(error.worst_percentage_points).toFixed(1)} in the worst bar of the timeline</>
            )}
            .
          </>
        )}
      </p>
      <ul class="notes muted">
        {data.notes.map((note) => (
          <li key={note}>{note}</li>
        ))}
      </ul>
    </Panel>
  );
}

/** What the form asked for. */
function Asked({ data }: { data: WhatIf }) {
  return (
    <>
      <CurveOf rows={data.rows} />
      <CurveTable rows={data.rows} truth={data.hit_rate} label="What the form asked for" />
      <p class="tools">
        <TakeAway path="/whatif" params={{ ...whatIfParams.value, engine: data.engine_id }} what="This what-if" />
      </p>
    </>
  );
}
