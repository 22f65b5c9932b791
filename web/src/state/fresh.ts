// Keeps what a view shows fresh: read when the view opens or what it asks for changes, then again as events come in,
// at most every so often, and not at all while nobody looks. Knows resources and the clock, no view.
import { effect, untracked } from "@preact/signals";
import { attempts } from "./access";
import { nowMs, visible } from "./clock";
import { pulse } from "./live";
import { isLive } from "./log";
import type { Resource } from "./resource";

export interface Freshness {
  /** What is asked for, as a text; null while no open view needs it, or what it needs is not known yet. */
  key: () => string | null;
  /** The part of the key that names the thing: another thing's answer is not shown meanwhile. */
  thing?: () => string | null;
  /** At least this long between two reads of the same. */
  everyMs: number;
  /** Whether new events can change the answer. */
  moves?: () => boolean;
  /** Whether the last answer says that there is more to come: asked again though nothing happens in the log. */
  isUnfinished?: () => boolean;
}

/** Starts keeping `resource` fresh. Called once a resource, when the page starts. */
export function keepFresh<T>(resource: Resource<T>, { key, thing, everyMs, moves, isUnfinished }: Freshness): void {
  let readKey: string | null = null;
  let readThing: string | null = null;
  let readAt = 0;
  let readPulse = -1;

  const noteRead = () => {
    readAt = Date.now();
    readPulse = pulse.peek();
  };

  effect(() => {
    const wanted = key();
    const named = thing?.() ?? null;
    const tries = attempts.value;
    if (wanted === null || !visible.value) return;
    untracked(() => {
      const full = `${tries} ${wanted}`;
      if (full === readKey && resource.data.peek() !== null) return;
      if (named !== readThing) resource.clear();
      readThing = named;
      readKey = full;
      noteRead();
      void resource.reload();
    });
  });

  effect(() => {
    const now = nowMs.value;
    if (!visible.value) return;
    untracked(() => {
      if (key() === null || readKey === null) return;
      const age = now - readAt;
      const isNew = pulse.peek() !== readPulse && (moves?.() ?? true);
      const status = resource.status.peek();
      // What the server refuses for good is not asked again until something else is wanted.
      const isRetry =
        resource.error.peek() !== null && (status === null || status < 400 || status >= 500) && age >= 4000;
      const isDue = (isNew || isUnfinished?.()) && age >= everyMs;
      if (!isRetry && !isDue && !(isLive.peek() && (moves?.() ?? true) && age >= 5 * everyMs)) return;
      noteRead();
      void resource.refresh();
    });
  });
}
