// Why a lookup ended: what each cause is called, the letter and the look that mark it, and what to do about it.
// Pure: imports lib only. The list is closed; what it does not know is shown by its name.
import { duration, NONE, plural, shortId } from "./format";

/** How a cause is drawn: a colour with its fixed meaning, solid or striped. */
export interface Look {
  /** Orange: the CPU tier had it, or never got it. Yellow: under way. Grey: it had to be computed. Ink: all was emptied. */
  tone: "lost" | "flight" | "computed" | "ink";
  isHatched: boolean;
}

export interface CauseWords extends Look {
  label: string;
  mark: string;
  /** One sentence: what it means. */
  means: string;
}

export const CAUSES: Readonly<Record<string, CauseWords>> = {
  evicted: {
    label: "evicted",
    mark: "E",
    tone: "lost",
    isHatched: false,
    means: "The CPU tier had the block and gave its place to another.",
  },
  never_stored: {
    label: "never stored",
    mark: "N",
    tone: "lost",
    isHatched: true,
    means: "The block was computed once, but not copied to the CPU tier.",
  },
  in_flight: {
    label: "in flight",
    mark: "F",
    tone: "flight",
    isHatched: false,
    means: "The block was on its way, and not there yet.",
  },
  reset: {
    label: "reset",
    mark: "0",
    tone: "ink",
    isHatched: false,
    means: "The caches were emptied since the block was stored.",
  },
  not_aligned: {
    label: "not aligned",
    mark: "A",
    tone: "flight",
    isHatched: true,
    means: "The block was there, but a hit may end only where every KV-cache group has what it needs.",
  },
  cache_skipped: {
    label: "cache skipped",
    mark: "K",
    tone: "ink",
    isHatched: true,
    means: "The request asked not to read the prefix cache.",
  },
  last_token_rule: {
    label: "last token",
    mark: "T",
    tone: "computed",
    isHatched: true,
    means: "vLLM always computes the last token of a prompt, and with it the rest of its block.",
  },
  never_seen: {
    label: "never seen",
    mark: "U",
    tone: "computed",
    isHatched: false,
    means: "New content: nothing could have been cached.",
  },
  shorter_than_a_block: {
    label: "shorter than a block",
    mark: "B",
    tone: "computed",
    isHatched: true,
    means: "The prompt does not fill one block: there is nothing to cache.",
  },
};

/** Rows of a log that is older than the causes say nothing. */
export const NOT_RECORDED = "not_recorded";

/** The order of stacks and legends: what could be won back first. */
export const CAUSE_ORDER = Object.keys(CAUSES);

export function causeOf(name: string): CauseWords {
  return CAUSES[name] ?? { label: name.replaceAll("_", " "), mark: "·", tone: "computed", isHatched: false, means: "" };
}

/** Where an advice leads: the view that shows more, or where the thing is changed. */
export type AdviceView = "policy" | "whatif" | "tier" | "benefit" | null;

interface Detail {
  label: string;
  advice: string;
  view: AdviceView;
}

const DETAILS: Readonly<Record<string, Detail>> = {
  "evicted owner_running": {
    label: "while its request ran",
    advice: "Re-store can keep these: turn it on, or raise its budget.",
    view: "policy",
  },
  "evicted no_owner": {
    label: "no request had it any more",
    advice: "Only a larger CPU tier keeps these: see how large.",
    view: "whatif",
  },
  "never_stored cpu_full": {
    label: "the CPU tier was full",
    advice: "Every block was pinned by copies and loads: a larger tier, or fewer requests at once.",
    view: "whatif",
  },
  "never_stored budget": {
    label: "the step's budget was used up",
    advice: "Raise the budget of re-stores a step, or set it to 0 for no limit.",
    view: "policy",
  },
  "never_stored no_gain": {
    label: "it would have cost more than it gave",
    advice: "The tier is too small for what runs: each place was worth more to another block.",
    view: "whatif",
  },
  "never_stored not_tried": {
    label: "not tried in that step",
    advice: "The step had looked for places as often as it may: the tier is under pressure.",
    view: "tier",
  },
  "never_stored copy_failed": {
    label: "the copy failed",
    advice: "A fault: the feed has its words.",
    view: null,
  },
  "never_stored rehashed": {
    label: "the GPU block held something else by then",
    advice: "The GPU cache is short too: its blocks are taken before they can be copied.",
    view: null,
  },
  "never_stored skipped": {
    label: "its turn did not come",
    advice: "Its request ended or lost the block before the copy: stores run behind what is computed.",
    view: null,
  },
  "in_flight copying": {
    label: "its copy was under way",
    advice: "The next turn came before the copy was complete: nothing is lost for good.",
    view: null,
  },
  "in_flight computing": {
    label: "another request was computing it",
    advice: "The same prompt came twice at once: send the second a moment later, and it hits.",
    view: null,
  },
  "last_token_rule draft_head": {
    label: "the draft head's block",
    advice: "With a draft head the last block that is found is computed again: nothing to do.",
    view: null,
  },
  "never_seen new_head": {
    label: "new from its first block on",
    advice: "A new conversation: nothing to win. If these should share a system prompt, see what differs at its head.",
    view: null,
  },
  "never_seen departs": {
    label: "departs from a prompt before it",
    advice: "Look at an example: a date, an id or the order of tools near the head costs all that follows.",
    view: null,
  },
  "never_seen extends": {
    label: "goes on where the last turn ended",
    advice: "What is new of a turn: nothing to win.",
    view: null,
  },
  "never_seen maybe_forgotten": {
    label: "new, or forgotten",
    advice: "The directory of seen hashes is full and has forgotten some: this may have been seen before.",
    view: null,
  },
  "never_seen never_computed": {
    label: "announced, and never computed",
    advice: "The request that brought it ended first: clients give up early.",
    view: null,
  },
};

const ALONE: Readonly<Record<string, Detail>> = {
  last_token_rule: { label: NONE, advice: "Costs a block at most: nothing to do.", view: null },
  shorter_than_a_block: { label: NONE, advice: "Nothing to do.", view: null },
  cache_skipped: {
    label: NONE,
    advice: "It wants prompt log probabilities, or asked for it: the client decides.",
    view: null,
  },
  reset: { label: NONE, advice: "Somebody called for a reset of the prefix cache: the feed says when.", view: null },
  not_aligned: { label: NONE, advice: "A limit of this model's hybrid cache: nothing to do.", view: null },
};

export function detailOf(cause: string, detail: string | null): Detail {
  const known = DETAILS[`${cause} ${detail ?? ""}`] ?? ALONE[cause];
  if (!known) return { label: detail?.replaceAll("_", " ") ?? NONE, advice: "", view: null };
  // The kind of group that limits a hit is a name of vLLM's, not one of this list.
  return known.label === NONE && detail ? { ...known, label: detail } : known;
}

/** What a lookup says of its end. */
export interface Cut {
  cause: string | null | undefined;
  detail: string | null | undefined;
  sinceNs?: number | null | undefined;
  lostTokens?: number | null | undefined;
  byRequestId?: string | null | undefined;
}

/** A few words for a row: `evicted 3.1 s before, by chat-19bc`. */
export function cutWords({ cause, detail, sinceNs, byRequestId }: Cut): string {
  if (!cause) return "";
  const words = causeOf(cause).label;
  if (cause === "evicted") {
    const when = sinceNs === null || sinceNs === undefined ? "" : ` ${duration(sinceNs)} before`;
    return `${words}${when}${byRequestId ? ` by ${shortId(byRequestId)}` : ""}`;
  }
  if (cause === "never_seen" && detail === "departs" && byRequestId) return `departs from ${shortId(byRequestId)}`;
  if (!detail || (cause === "never_seen" && detail === "extends"))
    return cause === "never_seen" ? "new content" : words;
  return `${words}: ${detailOf(cause, detail).label}`;
}

/** `1 216 tokens lost`, or nothing. */
export function lossWords(tokens: number | null | undefined): string {
  return tokens ? `${plural(tokens, "token")} lost` : "";
}
