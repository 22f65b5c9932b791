// The lines of the shadows on the timeline: which of them are shown stands in the address.
import { computed } from "@preact/signals";
import type { Shadow } from "../api/types";
import type { ShadowLine } from "../draw/shadows";
import { lineStyle, OBEYED, shadowLabel } from "../lib/shadows";
import { shadows } from "./evidence";
import { hrefHere, route } from "./location";

/** The shadows that may stand on the timeline, those hidden included. */
export const offered = computed<readonly Shadow[]>(() => shadows.data.value?.shadows ?? []);

/** Hidden at first: where it is right it runs along the top of the bars. */
const HIDDEN_AT_FIRST = OBEYED;
const NONE_HIDDEN = "none";

export const hidden = computed<ReadonlySet<string>>(
  () => new Set((route.value.params.hide ?? HIDDEN_AT_FIRST).split(",").filter((name) => name !== NONE_HIDDEN)),
);

export const shadowLines = computed<readonly ShadowLine[]>(() =>
  offered.value
    .filter(({ name }) => !hidden.value.has(name))
    .map((shadow) => ({
      style: lineStyle(shadow.name),
      label: shadowLabel(shadow.name),
      rates: new Map(
        shadow.points.flatMap(({ wall_ns, hit_rate }) => (hit_rate === null ? [] : [[wall_ns, hit_rate] as const])),
      ),
    })),
);

/** The address with one line shown or hidden. */
export function hrefToggled(name: string): string {
  const next = new Set(hidden.value);
  if (!next.delete(name)) next.add(name);
  const names = [...next].sort().join(",") || NONE_HIDDEN;
  return hrefHere({ hide: names === HIDDEN_AT_FIRST ? null : names });
}
