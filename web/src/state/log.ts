// What every screen needs to know about the log: its engines, the policy, the sums of the range, the timeline.
import { computed, effect, signal, untracked } from "@preact/signals";
import { api } from "../api/client";
import type { Engine } from "../api/types";
import { bucketSeconds, resolveRange } from "../lib/range";
import { attempts } from "./access";
import { nowMs, visible } from "./clock";
import { pulse } from "./live";
import { range, route } from "./location";
import { Resource } from "./resource";

export const engines = new Resource((abort) => api.engines(abort));
export const policy = new Resource((abort) => api.policy(abort));

export const liveEngines = computed(() => (engines.data.value ?? []).filter((engine) => engine.is_live));
export const isLive = computed(() => liveEngines.value.length > 0);
/** The engine that the header names: the newest live one, else the newest. */
export const mainEngine = computed(() => {
  const all = engines.data.value ?? [];
  return (
    liveEngines.value.at(-1) ?? all.reduce<(typeof all)[number] | null>((a, b) => (a && a.id > b.id ? a : b), null)
  );
});

export function engineOf(id: number): Engine | null {
  return (engines.data.value ?? []).find((engine) => engine.id === id) ?? null;
}

/** Where the log begins and ends, in milliseconds. While an engine lives, the end is now. */
export const logSpan = computed(() => {
  const all = engines.data.value ?? [];
  if (all.length === 0) return null;
  const beginMs = Math.min(...all.map((engine) => engine.started_wall_ns)) / 1e6;
  const ended = Math.max(...all.map((engine) => Math.max(engine.heartbeat_wall_ns, engine.stopped_wall_ns ?? 0))) / 1e6;
  return { beginMs, endMs: isLive.value ? null : ended + 1 };
});

/** How many buckets the timeline has room for: null until its view knows its width, and until then nothing is read. */
export const maxBuckets = signal<number | null>(null);
const USUAL_BUCKETS = 120;

/** The piece of time that is on screen, its edges on bucket borders, so that bars stand still while time moves. */
export function currentWindow(): { sinceMs: number; untilMs: number; bucket: number } {
  const { beginMs, endMs } = logSpan.value ?? { beginMs: null, endMs: null };
  const { sinceMs, untilMs } = resolveRange(range.value, endMs ?? Date.now(), beginMs);
  const bucket = bucketSeconds(untilMs - sinceMs, maxBuckets.value ?? USUAL_BUCKETS);
  const width = bucket * 1e3;
  return { sinceMs: Math.floor(sinceMs / width) * width, untilMs: Math.ceil(untilMs / width) * width, bucket };
}

export const timeline = new Resource((abort) => {
  const { sinceMs, untilMs, bucket } = untracked(currentWindow);
  return api.timeline(sinceMs, untilMs, bucket, abort);
});

/** The sums of the same piece of time; up to now, where the range has no end of its own. */
export const summary = new Resource((abort) => {
  const { sinceMs, untilMs } = untracked(currentWindow);
  return api.summary(sinceMs, range.peek().type === "fixed" ? untilMs : null, abort);
});

const FAST_MS = 2000;
const SLOW_MS = 6000;

/** Keeps it all fresh: fast while events come in, slowly otherwise, not at all in the background. */
export function startLog(): void {
  let readAt = 0;
  let readPulse = -1;

  effect(() => {
    attempts.value;
    if (!visible.value) return;
    untracked(() => {
      void engines.refresh();
      void policy.refresh();
    });
  });

  const begin = computed(() => logSpan.value?.beginMs ?? null);
  effect(() => {
    // What is asked for has changed: the range, the width, or the log has got its first engine.
    range.value.text;
    attempts.value;
    if (begin.value === null || maxBuckets.value === null || !isOverview.value) return;
    untracked(() => {
      readAt = Date.now();
      readPulse = pulse.peek();
      void summary.reload();
      void timeline.reload();
    });
  });

  effect(() => {
    const now = nowMs.value;
    if (!visible.value) return;
    untracked(() => {
      if (now % SLOW_MS < 1000) {
        void engines.refresh();
        void policy.refresh();
      }
      const age = now - readAt;
      const isNew = readPulse !== pulse.peek();
      if (!isOverview.peek() || logSpan.peek() === null || maxBuckets.peek() === null) return;
      if ((isNew && age >= FAST_MS) || (isLive.peek() && age >= SLOW_MS)) {
        readAt = now;
        readPulse = pulse.peek();
        void summary.refresh();
        if (range.peek().type !== "fixed") void timeline.refresh();
      }
    });
  });
}

const isOverview = computed(() => route.value.view === "now");
