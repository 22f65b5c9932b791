// Requests, newest first: the short table of the first screen and the paged one with its filter.
import type { ComponentChildren } from "preact";
import type { RequestRow } from "../api/types";
import { cutWords } from "../lib/causes";
import { clock, count, duration, exact, NONE, percent, ratio } from "../lib/format";
import { href, hrefHere, route, setParams } from "../state/location";
import { PAGE_ROWS, page } from "../state/requests";
import { Ago, CauseMark, Panel, Problem, RequestLink, SplitBar } from "./bits";
import { TakeAway } from "./charts";

const STATES = ["waiting", "running", "preempted", "finished", "lost"] as const;

export function RecentRequests() {
  return (
    <Panel title="Lookups, newest first" class="recent" tools={<a href={href("requests")}>all</a>}>
      <Problem what="The requests could not be read" error={page.error.value} />
      <Table rows={page.data.value?.requests ?? null} columns={SHORT} empty="No request yet." />
    </Panel>
  );
}

export function RequestsView() {
  const { before, state, search } = route.value.params;
  const data = page.data.value;
  const isFiltered = Boolean(state || search);
  return (
    <main class="view" id="main">
      <h1>Requests</h1>
      <search class="tools">
        <select
          aria-label="State"
          value={state ?? ""}
          onChange={(event) => setParams({ state: event.currentTarget.value, before: null })}
        >
          <option value="">every state</option>
          {STATES.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <input
          type="search"
          class="find"
          placeholder="part of a request or session id"
          aria-label="Search by request or session id"
          value={search ?? ""}
          onInput={(event) => setParams({ search: event.currentTarget.value, before: null }, true)}
        />
        <span class="push" />
        <TakeAway path="/requests" params={{ limit: PAGE_ROWS, before, state, search }} what="These requests" />
      </search>
      <Problem what="The requests could not be read" error={page.error.value} />
      <Table
        rows={data?.requests ?? null}
        columns={FULL}
        empty={isFiltered ? "No request matches." : before ? "No older request." : "No request yet."}
      />
      <nav class="pages" aria-label="Pages">
        {before && <a href={hrefHere({ before: null })}>newest</a>}
        {data?.next_before && <a href={hrefHere({ before: String(data.next_before) })}>older</a>}
      </nav>
    </main>
  );
}

interface Column {
  name: string;
  class?: string;
  cell: (row: RequestRow) => ComponentChildren;
}

const hit = (row: RequestRow) =>
  row.gpu_hit_tokens === null || row.cpu_hit_tokens === null
    ? null
    : {
        prompt: row.prompt_tokens,
        gpu: row.gpu_hit_tokens,
        cpu: row.cpu_hit_tokens,
        restored: row.restored_hit_tokens ?? 0,
        lost: row.lost_tokens ?? 0,
      };

const SESSION: Column = {
  name: "session",
  class: "wide hash clip",
  cell: (row) => <span title={row.session_id ?? ""}>{row.session_id ?? NONE}</span>,
};
const PROMPT: Column = { name: "prompt", class: "right", cell: (row) => count(row.prompt_tokens) };
const CACHE: Column = { name: "cached", class: "bar-cell", cell: (row) => <SplitBar split={hit(row)} /> };
const HIT: Column = {
  name: "hit",
  class: "right",
  cell: (row) => {
    const split = hit(row);
    return split ? percent(ratio(split.gpu + split.cpu, split.prompt)) : NONE;
  },
};
const CUT: Column = { name: "cut at", class: "right wide", cell: (row) => count(row.cut_index) };
const WHY: Column = {
  name: "why it ended there",
  class: "why",
  cell: (row) => <Why row={row} />,
};
const LOST: Column = {
  name: "lost tokens",
  class: "right",
  cell: (row) => (row.lost_tokens ? count(row.lost_tokens) : NONE),
};
const RESTORED: Column = {
  name: "re-stored",
  class: "right wide",
  cell: (row) => (row.restored_blocks > 0 ? count(row.restored_blocks) : NONE),
};
const TTFT: Column = { name: "TTFT", class: "right wide", cell: (row) => duration(row.ttft_ns) };
const OUT: Column = { name: "out", class: "right wide", cell: (row) => count(row.output_tokens) };
const STATE: Column = {
  name: "state",
  class: "wide",
  cell: (row) => (
    <>
      {row.state}
      {row.num_preemptions > 0 && <span class="muted">, {count(row.num_preemptions)}× preempted</span>}
    </>
  ),
};
const STARTED: Column = {
  name: "started",
  class: "right",
  cell: (row) => (
    <span title={exact(row.started_wall_ns, true)}>
      <span class="wide">{clock(row.started_wall_ns)} </span>
      <span class="muted">
        <Ago ns={row.started_wall_ns} />
      </span>
    </span>
  ),
};
const WHEN: Column = { name: "age", class: "right muted", cell: (row) => <Ago ns={row.started_wall_ns} isShort /> };

const SHORT: readonly Column[] = [PROMPT, CACHE, HIT, CUT, WHY, WHEN];
const FULL: readonly Column[] = [SESSION, PROMPT, CACHE, HIT, CUT, WHY, LOST, RESTORED, TTFT, OUT, STATE, STARTED];

/** The cause of the cut, with its letter. */
function Why({ row }: { row: RequestRow }) {
  if (row.cause) {
    const words = cutWords({
      cause: row.cause,
      detail: row.cause_detail,
      sinceNs: row.since_ns,
      byRequestId: row.by_request_id,
    });
    return (
      <span class="why-of" title={words}>
        <CauseMark cause={row.cause} /> <span>{words}</span>
      </span>
    );
  }
  if (row.gpu_hit_tokens === null) return <span class="muted">{row.state}</span>;
  return <span class="muted">{row.cut_index === null ? "all found" : NONE}</span>;
}

interface TableProps {
  rows: readonly RequestRow[] | null;
  columns: readonly Column[];
  empty: string;
}

function Table({ rows, columns, empty }: TableProps) {
  if (rows === null) return page.error.value === null ? <p class="muted">Reading the requests…</p> : null;
  if (rows.length === 0) return <p class="muted">{empty}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls has to be reachable by keyboard
    <section class="scroll-x" tabIndex={0} aria-label="Table of requests">
      <table class="requests">
        <thead>
          <tr>
            <th scope="col">request</th>
            {columns.map((column) => (
              <th key={column.name} scope="col" class={column.class}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.seq} onClick={(event) => openRow(event, row)}>
              <th scope="row">
                <RequestLink id={row.request_id} />
              </th>
              {columns.map((column) => (
                <td key={column.name} class={column.class}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** The whole row leads to the request; the link in it is what a keyboard and a screen reader use. */
function openRow(event: MouseEvent, row: RequestRow): void {
  if ((event.target as Element).closest("a") || window.getSelection()?.toString()) return;
  window.location.hash = href("request", row.request_id);
}
