// What the views of the evidence read: causes, benefit, shadows, what-if, conversations, the tier's map. Each is read while
// a view that shows it is open, for the piece of time that is on screen.
import { computed, effect, signal, untracked } from "@preact/signals";
import { api } from "../api/client";
import type { View } from "../lib/route";
import { keepFresh } from "./fresh";
import { range, route } from "./location";
import { currentWindow, logSpan, mainEngine, maxBuckets } from "./log";
import { Resource } from "./resource";

const windowNow = () => untracked(currentWindow);

export const glance = new Resource((abort) => api.glance(windowNow(), abort));
export const causes = new Resource((abort) => api.causes(windowNow(), abort));
export const benefit = new Resource((abort) => api.benefit(windowNow(), abort));
export const shadows = new Resource((abort) => api.shadows(windowNow(), abort));
export const conversations = new Resource((abort) => {
  const { before } = route.peek().params;
  return api.conversations({ limit: CONVERSATION_ROWS, before }, abort);
});
export const conversation = new Resource((abort) => api.conversation(route.peek().id ?? "", abort));
export const tier = new Resource((abort) => api.tier(tierParams.peek(), abort));
export const retention = new Resource((abort) => api.retention({ engine: tierParams.peek().engine }, abort));
export const whatIf = new Resource((abort) => {
  const { policies, cpu_gib } = whatIfParams.peek();
  return api.whatIf({ policies, cpu_gib, engine: mainEngine.peek()?.id }, abort);
});

export const CONVERSATION_ROWS = 50;
/** Blocks that a map of the tier shows at once: more cannot be told apart, and a page of them is quick to read. */
export const TIER_BLOCKS = 4096;

/** What the what-if form asks for; nothing is computed before it has asked. */
export const whatIfParams = computed(() => {
  const { policies, gib } = route.value.params;
  return { policies: policies || null, cpu_gib: gib || null };
});

export const tierParams = computed(() => {
  const { engine, seq, from } = route.value.params;
  return {
    engine: engine || mainEngine.value?.id || null,
    seq: seq || null,
    first_id: from || null,
    limit: TIER_BLOCKS,
  };
});

/** Whether the shadows have once come to the log's end since the page was opened. */
const haveCaughtUp = signal(false);

const on = (...views: View[]) => views.includes(route.value.view);
/** The range on screen as a key; null before the log's begin and the chart's width are known. */
const windowKey = (needsWidth: boolean) =>
  logSpan.value === null || (needsWidth && maxBuckets.value === null)
    ? null
    : `${range.value.text} ${logSpan.value.beginMs}`;
const moves = () => range.peek().type !== "fixed";

/** Starts reading. Called once, when the page starts. */
export function startEvidence(): void {
  keepFresh(glance, {
    // What a larger tier would give is known once the shadows have read the log.
    key: () => (on("now") && windowKey(true) !== null ? `${windowKey(true)} ${haveCaughtUp.value}` : null),
    everyMs: 3000,
    moves,
  });
  keepFresh(benefit, { key: () => (on("now", "benefit") ? windowKey(on("now")) : null), everyMs: 4000, moves });
  keepFresh(shadows, {
    key: () => (on("now", "whatif") ? windowKey(on("now")) : null),
    everyMs: 3000,
    moves,
    isUnfinished: () => shadows.data.peek()?.is_caught_up === false,
  });
  effect(() => {
    if (shadows.data.value?.is_caught_up) haveCaughtUp.value = true;
  });
  keepFresh(causes, { key: () => (on("misses") ? windowKey(false) : null), everyMs: 3000, moves });
  keepFresh(conversations, {
    key: () => (on("conversations") && logSpan.value ? `${route.value.params.before ?? ""}` : null),
    everyMs: 5000,
  });
  keepFresh(conversation, {
    key: () => (on("conversation") ? (route.value.id ?? "") : null),
    thing: () => route.value.id,
    everyMs: 3000,
  });
  keepFresh(tier, {
    key: () => (on("tier") && mainEngine.value ? JSON.stringify(tierParams.value) : null),
    thing: () => `${tierParams.value.engine}`,
    everyMs: 2000,
    moves: () => !route.peek().params.seq,
  });
  keepFresh(retention, {
    key: () => (on("tier") && mainEngine.value ? `${tierParams.value.engine}` : null),
    thing: () => `${tierParams.value.engine}`,
    everyMs: 3000,
  });
  keepFresh(whatIf, {
    key: () =>
      on("whatif") && mainEngine.value && whatIfParams.value.cpu_gib ? JSON.stringify(whatIfParams.value) : null,
    everyMs: Number.POSITIVE_INFINITY,
    // Replaying a log takes a while: it is done when somebody asks, not by itself.
    moves: () => false,
  });
}
