// Small pieces that several views share: times, hashes, marks, the split bar, notes.
import type { ComponentChildren } from "preact";
import type { EventRow } from "../api/types";
import { causeOf } from "../lib/causes";
import { kindOf, type Tone } from "../lib/events";
import { ago, duration, exact, NONE, percent, ratio, share, shortHash, shortId } from "../lib/format";
import { nowMs } from "../state/clock";
import { href, range } from "../state/location";
import { isLive } from "../state/log";

/** A moment: how long ago, with the exact time at hand. */
export function Ago({ ns, isShort = false }: { ns: number | null | undefined; isShort?: boolean }) {
  if (ns === null || ns === undefined) return <span>{NONE}</span>;
  return (
    <time dateTime={new Date(ns / 1e6).toISOString()} title={exact(ns, true)}>
      {isShort ? ago(ns, nowMs.value).replace(/ ago$/, "") : ago(ns, nowMs.value)}
    </time>
  );
}

export function Hash({ hash }: { hash: string | null | undefined }) {
  return (
    <span class="hash" title={hash ?? ""}>
      {shortHash(hash)}
    </span>
  );
}

export function RequestLink({ id, length = 8 }: { id: string | null | undefined; length?: number }) {
  if (!id) return <span>{NONE}</span>;
  return (
    <a class="hash" href={href("request", id)} title={id}>
      {shortId(id, length)}
    </a>
  );
}

/** A colour that means something, with its letter. */
export function Mark({ tone, children, label }: { tone: Tone; children: ComponentChildren; label?: string }) {
  return (
    <span class={`mark tone-${tone}`} aria-hidden={label === undefined} title={label}>
      {children}
    </span>
  );
}

export function KindMark({ event }: { event: EventRow }) {
  const kind = kindOf(event.kind);
  return <Mark tone={kind.tone}>{kind.mark}</Mark>;
}

/** The letter of a cause on its colour. */
export function CauseMark({ cause }: { cause: string }) {
  const { mark, tone, isHatched, label } = causeOf(cause);
  return (
    <i class={`swatch fill-cause-${tone}${isHatched ? "-hatched" : ""}`} aria-hidden="true" title={label}>
      {mark}
    </i>
  );
}

/** A box that scrolls sideways or down: it can be reached by keyboard, and has a name. */
export function Scroll({ label, children, class: name }: ScrollProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls has to be reachable by keyboard
    <section class={name ?? "scroll-x"} tabIndex={0} aria-label={label}>
      {children}
    </section>
  );
}

interface ScrollProps {
  label: string;
  children: ComponentChildren;
  class?: string;
}

/** The range on screen in words that follow a statement. */
export function rangeWords(): string {
  const now = range.value;
  if (now.type === "all") return "in the whole log";
  if (now.type === "fixed") return "in this piece of time";
  const words = `${duration(now.ms * 1e6)}`;
  return isLive.value ? `in the last ${words}` : `in the last ${words} of the log`;
}

export interface Split {
  prompt: number;
  gpu: number;
  cpu: number;
  restored?: number;
  /** Of the computed: computed before. */
  lost?: number;
}

/** The split of anything that counts tokens by their source under the API's names. */
export function splitOf(row: {
  prompt_tokens: number;
  gpu_hit_tokens: number;
  cpu_hit_tokens: number;
  restored_hit_tokens: number;
  lost_tokens: number;
}): Split {
  return {
    prompt: row.prompt_tokens,
    gpu: row.gpu_hit_tokens,
    cpu: row.cpu_hit_tokens,
    restored: row.restored_hit_tokens,
    lost: row.lost_tokens,
  };
}

/** Prompt tokens by source as one bar, with the hit rate in words for those who do not see it. */
export function SplitBar({ split }: { split: Split | null }) {
  if (split === null || split.prompt === 0) return <span class="muted">{NONE}</span>;
  const { prompt, gpu, cpu, restored = 0, lost: computedAgain = 0 } = split;
  const computed = prompt - gpu - cpu;
  const lost = Math.min(computedAgain, computed);
  const part = (tokens: number) => `${((ratio(tokens, prompt) ?? 0) * 100).toFixed(2)}%`;
  const words = `${share(gpu, prompt)} GPU hit, ${share(cpu, prompt)} CPU hit, ${share(computed, prompt)} computed${lost > 0 ? `, ${share(lost, prompt)} again` : ""}`;
  return (
    <span class="split" role="img" aria-label={words} title={words}>
      <i class="fill-gpu" style={{ width: part(gpu) }} />
      <i class="fill-cpu" style={{ width: part(cpu - restored) }} />
      <i class="fill-restored" style={{ width: part(restored) }} />
      <i class="fill-again" style={{ width: part(lost) }} />
      <i class="fill-computed" style={{ width: part(computed - lost) }} />
    </span>
  );
}

export function Meter({ value, max, label }: { value: number; max: number; label: string }) {
  const rate = ratio(value, max);
  return (
    <span class="meter" role="img" aria-label={`${label}: ${percent(rate)}`}>
      <i class="fill-cpu" style={{ width: `${Math.min(100, (rate ?? 0) * 100).toFixed(2)}%` }} />
    </span>
  );
}

/** Something that went wrong, in the server's own words. */
export function Problem({ what, error }: { what: string; error: string | null }) {
  if (error === null) return null;
  return (
    <p class="note alarm" role="alert">
      <Mark tone="alarm">!</Mark> {what}: {error}
    </p>
  );
}

export function Panel({ title, children, tools, class: name }: PanelProps) {
  return (
    <section class={`panel ${name ?? ""}`} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {tools}
      </header>
      {children}
    </section>
  );
}

interface PanelProps {
  title: string;
  children: ComponentChildren;
  tools?: ComponentChildren;
  class?: string;
}

/** A number with the words that it needs to be read. */
export function Figure({ value, label }: { value: ComponentChildren; label: string }) {
  return (
    <div class="figure">
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}
