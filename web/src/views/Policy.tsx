// The policy's history: who asked for what and when, and from which step on each engine obeyed.
import type { PolicyBody, PolicyHistoryEntry } from "../api/types";
import { budgetText, policyLabel } from "../lib/events";
import { count, duration, exact, NONE } from "../lib/format";
import { policyHistory } from "../state/lists";
import { Ago, Problem } from "./bits";
import { SwitchPanel } from "./Switch";

export function PolicyView() {
  const rows = policyHistory.data.value;
  return (
    <main class="view" id="main">
      <h1>Policy</h1>
      <div class="beside">
        <section aria-label="History">
          <Problem what="The history could not be read" error={policyHistory.error.value} />
          {rows === null ? (
            !policyHistory.error.value && <p class="muted">Reading the history…</p>
          ) : rows.length === 0 ? (
            <p>Nobody has changed the policy: the built-in default holds.</p>
          ) : (
            <Table rows={rows} />
          )}
        </section>
        <SwitchPanel />
      </div>
    </main>
  );
}

function Table({ rows }: { rows: readonly PolicyHistoryEntry[] }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls has to be reachable by keyboard
    <section class="scroll-x" tabIndex={0} aria-label="Changes, newest first">
      <table>
        <thead>
          <tr>
            <th scope="col" class="right">
              version
            </th>
            <th scope="col">when</th>
            <th scope="col">who</th>
            <th scope="col">from → to</th>
            <th scope="col">the engines' answer</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.version}>
              <th scope="row" class="right">
                v{count(row.version)}
              </th>
              <td>
                {exact(row.created_wall_ns)}{" "}
                <span class="muted">
                  <Ago ns={row.created_wall_ns} />
                </span>
              </td>
              <td class="words">{row.author}</td>
              <td>{changeWords(row.before, row.after)}</td>
              <td class="words">
                <Applied row={row} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Only what changed; "nothing" where someone asked for what held already. */
function changeWords(before: PolicyBody, after: PolicyBody): string {
  const parts: string[] = [];
  if (before.retention !== after.retention) parts.push(`${policyLabel(before)} → ${policyLabel(after)}`);
  else if (before.enabled !== after.enabled) parts.push(`${policyLabel(before)} → ${policyLabel(after)}`);
  else if (before.mode !== after.mode) parts.push(`${before.mode} → ${after.mode}${after.enabled ? "" : " (off)"}`);
  const budgets = [before.max_restore_blocks_per_step, after.max_restore_blocks_per_step] as const;
  if (budgets[0] !== budgets[1]) parts.push(`budget ${budgetText(budgets[0])} → ${budgetText(budgets[1])}`);
  return parts.join(", ") || "no change";
}

function Applied({ row }: { row: PolicyHistoryEntry }) {
  if (row.applied.length === 0) return <span class="muted">{NONE}</span>;
  return (
    <ul class="plain">
      {row.applied.map((answer) => (
        <li key={answer.engine_id}>
          engine {answer.dp_index}: step {count(answer.applied_step)}
          {answer.applied_wall_ns !== null && (
            <span class="muted">
              ,{" "}
              {answer.reason === "toggle"
                ? `${duration(answer.applied_wall_ns - row.created_wall_ns)} later`
                : answer.reason}
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}
