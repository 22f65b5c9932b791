// The address bar as a signal, and the only code that writes it.
import { computed, signal } from "@preact/signals";
import { DEFAULT_RANGE, parseRange, type Range } from "../lib/range";
import { formatRoute, parseRoute, type View } from "../lib/route";

export const route = signal(parseRoute(window.location.hash));

window.addEventListener("hashchange", () => {
  route.value = parseRoute(window.location.hash);
});

const FALLBACK: Range = { type: "last", ms: 15 * 60e3, text: DEFAULT_RANGE };

export const range = computed<Range>(() => parseRange(route.value.params.range) ?? FALLBACK);

type Changes = Record<string, string | null | undefined>;

/** The address of a view. The range goes along, other parameters only where they are given. */
export function href(view: View, id: string | null = null, params: Changes = {}): string {
  return formatRoute(view, id, { range: route.value.params.range, ...params });
}

/** The address of this same view with some parameters changed; null or "" removes one. */
export function hrefHere(changes: Changes): string {
  const { view, id, params } = route.value;
  return formatRoute(view, id, { ...params, ...changes });
}

/** Changes parameters of this view. `replace` for what is not worth a step back: typing, moving a selection. */
export function setParams(changes: Changes, replace = false): void {
  const next = hrefHere(changes);
  if (next === window.location.hash) return;
  if (replace) {
    window.history.replaceState(null, "", next);
    route.value = parseRoute(next);
  } else {
    window.location.hash = next;
  }
}
