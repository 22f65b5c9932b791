// What each kind of event is called, the letter that marks it, and its one line of text. Pure: types of the API only.
import type { Engine, EventRow } from "../api/types";
import { cutWords, lossWords } from "./causes";
import { bytes, count, duration, NONE, plural, ratio, shortHash, shortId, span } from "./format";
import { points, switchWords } from "./retention";

/** A colour role: the same name means the same thing on every screen (see draw/palette.ts). */
export type Tone = "gpu" | "cpu" | "restored" | "computed" | "lost" | "flight" | "pinned" | "plain" | "alarm";

export interface Kind {
  /** How the feed names it: a past participle. */
  label: string;
  /** One character beside the colour. */
  mark: string;
  tone: Tone;
}

export const KINDS: Readonly<Record<string, Kind>> = {
  request_started: { label: "started", mark: "+", tone: "plain" },
  lookup: { label: "looked up", mark: "?", tone: "plain" },
  blocks_stored: { label: "stored", mark: "S", tone: "computed" },
  blocks_restored: { label: "re-stored", mark: "R", tone: "restored" },
  blocks_evicted: { label: "evicted", mark: "E", tone: "lost" },
  blocks_loaded: { label: "loaded", mark: "L", tone: "cpu" },
  blocks_missed: { label: "wanted again", mark: "W", tone: "lost" },
  blocks_dropped: { label: "dropped", mark: "D", tone: "lost" },
  stores_refused: { label: "refused", mark: "N", tone: "lost" },
  rule_switched: { label: "rule switched", mark: "V", tone: "pinned" },
  cursor_moved: { label: "cursor moved", mark: "›", tone: "plain" },
  request_preempted: { label: "preempted", mark: "P", tone: "flight" },
  request_finished: { label: "finished", mark: "■", tone: "plain" },
  policy_applied: { label: "policy applied", mark: "V", tone: "pinned" },
  events_dropped: { label: "events dropped", mark: "!", tone: "alarm" },
  fault: { label: "fault", mark: "!", tone: "alarm" },
  cache_reset: { label: "cache reset", mark: "0", tone: "lost" },
};

export function kindOf(name: string): Kind {
  return KINDS[name] ?? { label: name.replaceAll("_", " "), mark: "·", tone: "plain" };
}

const DROP_REASONS: Readonly<Record<string, string>> = {
  cpu_full: "the CPU tier was full",
  budget: "the budget of the step was used up",
  no_gain: "it would have cost a running request a block nearer its head",
  not_tried: "the step had looked for places in the tier as often as it may",
  copy_failed: "the copy failed",
  rehashed: "the GPU block held something else by then",
  skipped: "its turn did not come",
};

const REFUSAL_REASONS: Readonly<Record<string, string>> = {
  worth: "nothing in the tier is worth so much less",
  order: "nothing in the tier was used before it",
  no_victim: "nothing in the tier can leave",
  hole: "what lies before it is not in the tier",
};

const number = (value: unknown): number | null => (typeof value === "number" ? value : null);
const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);

/** The run of blocks that an event names, if it names one. */
export function runOf(event: EventRow): { first: number; num: number; group: number; tail: string | null } | null {
  const first = number(event.data.first_index);
  const num = number(event.data.num_blocks);
  const group = number(event.data.kv_group);
  return first === null || num === null || group === null
    ? null
    : { first, num, group, tail: text(event.data.tail_hash) };
}

/** For each KV-cache group, how many hash blocks one of its blocks covers. */
export function groupRatios(engine: Engine | null, hashBlockSize: number): number[] {
  const groups = (engine?.kv_groups ?? []) as { block_size?: number }[];
  return groups.map(({ block_size: size }) => Math.max(1, Math.floor((size ?? hashBlockSize) / hashBlockSize)));
}

/** Whether the event says something about the hash block `index`; events count in blocks of their group. */
export function touchesBlock(event: EventRow, index: number, ratios: readonly number[] = []): boolean {
  const run = runOf(event);
  if (run === null) return false;
  const ratio = ratios[run.group] ?? 1;
  return index >= run.first * ratio && index < (run.first + run.num) * ratio;
}

/** The other request that the event names. */
export function otherParty(event: EventRow): string | null {
  return text(event.data.by_request_id);
}

/** What happened, without the kind and the request, which stand in columns of their own. */
export function describe(event: EventRow): string {
  const d = event.data;
  const run = runOf(event);
  const blocks = run ? `g${run.group} ${span(run.first, run.num)}` : "";
  switch (event.kind) {
    case "request_started":
      return `${plural(number(d.num_tokens) ?? 0, "token")}, ${plural(number(d.num_blocks) ?? 0, "block")}`;
    case "lookup":
      return describeLookup(d);
    case "blocks_stored":
    case "blocks_restored":
    case "blocks_loaded":
      return join(blocks, bytes(number(d.num_bytes)), ordered(event), copied(d));
    case "blocks_evicted": {
      const by = otherParty(event);
      const owned = number(d.num_owned) ?? 0;
      const age = number(d.age_ns);
      return join(
        blocks,
        by ? `by ${shortId(by)}` : "",
        owned === 0 ? "" : `${owned === run?.num ? "" : `${count(owned)} `}of a running request`,
        age === null ? "" : `${duration(age)} after its store`,
        number(d.num_loaded) === 0 ? "never hit" : "",
        d.is_by_restore ? "for a re-store" : "",
        worths(number(d.victim_worth), number(d.incoming_worth), "what came in"),
      );
    }
    case "blocks_missed": {
      const by = otherParty(event);
      const owned = number(d.num_owned) ?? 0;
      return join(
        blocks,
        `evicted ${duration(number(d.since_ns))} before`,
        by ? `by ${d.is_by_restore ? "a re-store of " : ""}${shortId(by)}` : "",
        owned === 0 ? "" : "a running request had them",
      );
    }
    case "blocks_dropped": {
      const where = run ? blocks : `g${count(number(d.kv_group))} ${plural(number(d.num_blocks) ?? 0, "block")}`;
      const reason = text(d.reason) ?? NONE;
      return join(where, DROP_REASONS[reason] ?? reason);
    }
    case "stores_refused": {
      const reason = text(d.reason) ?? NONE;
      return join(
        blocks,
        d.is_restore ? "a re-store" : "",
        REFUSAL_REASONS[reason] ?? reason,
        worths(number(d.incoming_worth), number(d.victim_worth), "the least in the tier"),
      );
    }
    case "rule_switched":
      return switchWords({
        from_rule: d.from_rule as "lru",
        to_rule: d.to_rule as "lru",
        reason: d.reason as "learned",
        lru_hit_rate: ratio(number(d.lru_hit_blocks), number(d.asked_blocks)),
        worth_hit_rate: ratio(number(d.worth_hit_blocks), number(d.asked_blocks)),
        asked_blocks: number(d.asked_blocks) ?? 0,
        num_reuses: number(d.num_reuses) ?? 0,
      });
    case "cursor_moved":
      return `g${count(number(d.kv_group))} ${count(number(d.from_index))} → ${count(number(d.to_index))}`;
    case "request_preempted":
      return `for the ${ordinal(number(d.num_preemptions) ?? 1)} time`;
    case "request_finished": {
      const ttft = number(d.ttft_ns);
      return join(
        statusWords(text(d.status)),
        `${count(number(d.num_output_tokens))} out`,
        ttft === null ? "" : `TTFT ${duration(ttft)}`,
        duration(number(d.duration_ns)),
      );
    }
    case "policy_applied":
      return join(
        `v${count(number(d.policy_version))}`,
        policyLabel({
          enabled: d.enabled === true || d.enabled === 1,
          mode: text(d.mode) ?? NONE,
          retention: text(d.retention) ?? "lru",
        }),
        `budget ${budgetText(number(d.max_restore_blocks_per_step))}`,
        text(d.reason) ?? "",
        d.is_idle ? "idle" : "",
      );
    case "events_dropped":
      return `${plural(number(d.num_events) ?? 0, "event")} missing here: the queue was full`;
    case "fault":
      return join(text(d.origin) ?? "", text(d.message) ?? "");
    case "cache_reset":
      return `${plural(number(d.num_blocks) ?? 0, "block")} gone`;
    default:
      return "";
  }
}

function describeLookup(d: EventRow["data"]): string {
  const tokens = number(d.num_tokens) ?? 0;
  const gpu = number(d.gpu_hit_tokens) ?? 0;
  const cpu = number(d.cpu_hit_tokens) ?? 0;
  if (d.is_skipped) return `${plural(tokens, "token")}, prefix cache not asked`;
  const cut = number(d.cut_index);
  const why = cutWords({
    cause: text(d.cause),
    detail: text(d.cause_detail),
    sinceNs: number(d.since_ns),
    byRequestId: text(d.by_request_id),
  });
  return join(
    `${count(tokens)} = ${count(gpu)} GPU + ${count(cpu)} CPU + ${count(tokens - gpu - cpu)} computed`,
    cut === null ? "" : `cut at ${cut}${why ? `: ${why}` : `, missing ${shortHash(text(d.missing_hash))}`}`,
    lossWords(number(d.lost_tokens)),
    d.is_resumed ? "resumed" : "",
  );
}

/** vLLM's status in plain words: `length capped`. */
export function statusWords(status: string | null): string {
  return (status ?? "")
    .replace(/^FINISHED_/, "")
    .toLowerCase()
    .replaceAll("_", " ");
}

function ordered(event: EventRow): string {
  const step = number(event.data.scheduled_step);
  return step === null || step === event.step ? "" : `ordered at step ${count(step)}`;
}

/** The score of what went or was refused, and of what it was weighed against. */
function worths(own: number | null, other: number | null, otherWords: string): string {
  if (own === null) return "";
  return `worth ${points(own)}${other === null ? "" : `, ${otherWords} ${points(other)}`}`;
}

/** What the worker measured for the copy. */
function copied(d: EventRow["data"]): string {
  const ns = number(d.copy_ns);
  return ns === null ? "" : `took ${duration(ns)}`;
}

function join(...parts: string[]): string {
  return parts.filter((part) => part !== "").join(" · ");
}

function ordinal(n: number): string {
  const tail = n % 100 >= 11 && n % 100 <= 13 ? "th" : (["th", "st", "nd", "rd"][n % 10] ?? "th");
  return `${n}${tail}`;
}

/** `off`, `rescan` or `tracked` under vLLM's own order; `adaptive`, or `adaptive-off` without re-store. */
export function policyLabel(policy: { enabled: boolean; mode: string; retention: string }): string {
  if (policy.retention === "adaptive") return policy.enabled ? "adaptive" : "adaptive-off";
  return policy.enabled ? policy.mode : "off";
}

export function budgetText(budget: number | null): string {
  return budget === 0 ? "no limit" : `${count(budget)} a step`;
}

/** Whether a search text names the event: its request, the other request, or a hash that it carries. */
export function matches(event: EventRow, kinds: ReadonlySet<string> | null, find: string): boolean {
  if (kinds !== null && !kinds.has(event.kind)) return false;
  if (find === "") return true;
  const d = event.data;
  const places = [event.request_id, otherParty(event), text(d.tail_hash), text(d.missing_hash), text(d.session_id)];
  return places.some((place) => place?.toLowerCase().includes(find.toLowerCase()));
}
