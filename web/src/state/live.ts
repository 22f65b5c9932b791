// The connection to the stream of events: opened while someone is looking, resumed where it broke off.
import { effect, signal } from "@preact/signals";
import { api } from "../api/client";
import { followEvents } from "../api/stream";
import type { EventRow } from "../api/types";
import { mergeBySeq } from "../lib/ring";
import { attempts, noteRefusal } from "./access";
import { visible } from "./clock";

export type Connection = "connecting" | "open" | "lost" | "resting";

export const connection = signal<Connection>("connecting");
/** When the connection was lost, in milliseconds; null while it is not. */
export const lostSinceMs = signal<number | null>(null);
/** Why, in one line. */
export const lostReason = signal<string | null>(null);
/** The newest events, oldest first. */
export const recent = signal<readonly EventRow[]>([]);
/** The newest sequence number that this page knows of. */
export const lastSeq = signal(0);
/** Counts batches of events, at most one a frame: what a view re-reads by. */
export const pulse = signal(0);

const CAPACITY = 2000;
const BACKLOG = 300;
const RETRY_MS = [500, 1000, 2000, 4000, 8000] as const;

let waiting: EventRow[] = [];
let isFlushDue = false;
let stop: AbortController | null = null;

function take(event: EventRow): void {
  waiting.push(event);
  if (isFlushDue) return;
  isFlushDue = true;
  requestAnimationFrame(flush);
}

function flush(): void {
  isFlushDue = false;
  const batch = waiting;
  waiting = [];
  if (batch.length === 0) return;
  recent.value = mergeBySeq(recent.value, batch, CAPACITY);
  lastSeq.value = Math.max(lastSeq.value, batch.at(-1)?.seq ?? 0);
  pulse.value += 1;
}

/** Reads the newest rows by REST: at the start, after a gap, and after a long time in the background. */
async function catchUp(signal: AbortSignal): Promise<void> {
  const { events, last_seq } = await api.events({ limit: BACKLOG }, signal);
  // What the stream brought meanwhile stays; what is older than the page would leave a hole.
  const newest = events.at(-1)?.seq ?? 0;
  recent.value = mergeBySeq(
    events,
    recent.value.filter(({ seq }) => seq > newest),
    CAPACITY,
  );
  lastSeq.value = Math.max(last_seq, recent.value.at(-1)?.seq ?? 0);
  pulse.value += 1;
}

async function run(signal: AbortSignal): Promise<void> {
  let failures = 0;
  let isKnown = recent.value.length > 0;
  let isBack = false;
  connection.value = "connecting";
  while (!signal.aborted) {
    try {
      // A server that comes back may bring another log, whose numbers start again.
      if (isBack && (await api.events({ limit: 1 }, signal)).last_seq < lastSeq.value) isKnown = forget();
      if (!isKnown) await catchUp(signal);
      isKnown = true;
      await followEvents(
        lastSeq.value,
        {
          opened: () => {
            failures = 0;
            connection.value = "open";
            lostSinceMs.value = null;
            lostReason.value = null;
            pulse.value += 1;
          },
          event: take,
          gap: ({ is_other_log }) => {
            waiting = [];
            if (is_other_log) forget();
            void catchUp(signal).catch(() => undefined);
          },
        },
        signal,
      );
      // The server closed the stream: it is on its way out, or a proxy tidied up.
      lost("the server closed the stream");
    } catch (error) {
      if (signal.aborted) return;
      if (noteRefusal(error)) return;
      lost(error instanceof Error ? error.message : String(error));
    }
    isBack = true;
    await pause(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? 8000, signal);
    failures += 1;
  }
}

function forget(): false {
  recent.value = [];
  lastSeq.value = 0;
  return false;
}

function lost(reason: string): void {
  connection.value = "lost";
  lostSinceMs.value ??= Date.now();
  lostReason.value = reason;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener("abort", end, { once: true });
    window.addEventListener("online", end, { once: true });
  });
}

/** Starts following. Called once, when the page starts. */
export function startLive(): void {
  effect(() => {
    attempts.value;
    stop?.abort();
    stop = null;
    if (!visible.value) {
      if (connection.peek() !== "lost") connection.value = "resting";
      return;
    }
    stop = new AbortController();
    // Outside of the effect: what runs in there is not what this effect depends on.
    queueMicrotask(run.bind(null, stop.signal));
  });
}
