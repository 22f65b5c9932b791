// The feed of events: the stream's newest, a filter that the address bar holds, and a pause that stays.
import { computed, effect, signal } from "@preact/signals";
import { api } from "../api/client";
import type { EventRow } from "../api/types";
import { KINDS, matches } from "../lib/events";
import { mergeBySeq } from "../lib/ring";
import { recent } from "./live";
import { route } from "./location";
import { Resource } from "./resource";

export const FEED_ROWS = 200;

/** The kinds that are shown; null means all. */
export const kinds = computed<ReadonlySet<string> | null>(() => {
  const names = (route.value.params.kind ?? "").split(",").filter((name) => name in KINDS);
  return names.length > 0 ? new Set(names) : null;
});
export const find = computed(() => route.value.params.find?.trim() ?? "");

/** What the feed showed when it was paused; null while it runs. */
export const frozen = signal<readonly EventRow[] | null>(null);

/** Older rows that match the filter, read by REST: the stream's memory may hold none of a rare kind or an old request. */
const older = new Resource(async (abort) => {
  const filter = { limit: FEED_ROWS, kind: [...(kinds.peek() ?? [])] };
  const text = find.peek();
  // The API knows requests by the start of their id, which short ids on screen have lost; a hash it does not look for.
  const starts = text === "" ? [null] : [text, `chatcmpl-${text}`, `cmpl-${text}`];
  const pages = await Promise.all(starts.map((request) => api.events({ ...filter, request }, abort)));
  return pages.flatMap(({ events }) => events).sort((a, b) => a.seq - b.seq);
});

const all = computed(() => {
  if (frozen.value !== null) return frozen.value;
  const before = older.data.value;
  return before
    ? mergeBySeq(mergeBySeq([], before, Number.POSITIVE_INFINITY), recent.value, Number.POSITIVE_INFINITY)
    : recent.value;
});

/** The rows on screen, newest first. */
export const shown = computed(() => {
  const rows: EventRow[] = [];
  for (let i = all.value.length - 1; i >= 0 && rows.length < FEED_ROWS; i -= 1) {
    const event = all.value[i];
    if (event && matches(event, kinds.value, find.value)) rows.push(event);
  }
  return rows;
});

/** How many events came in since the pause. */
export const numHeldBack = computed(() => {
  const since = frozen.value?.at(-1)?.seq;
  return since === undefined ? 0 : recent.value.filter((event) => event.seq > since).length;
});

export function togglePause(): void {
  frozen.value = frozen.value === null ? all.peek() : null;
}

const TYPING_MS = 250;

export function startFeed(): void {
  effect(() => {
    const isFiltered = kinds.value !== null || find.value !== "";
    older.clear();
    if (!isFiltered) return;
    const timer = setTimeout(() => void older.reload(), TYPING_MS);
    return () => clearTimeout(timer);
  });
}
