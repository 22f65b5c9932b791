// The bucket under the cursor that all strips share, and the unit of the sources' chart.
import { computed, signal } from "@preact/signals";
import type { Unit } from "../draw/strips";
import { route } from "./location";
import { timeline } from "./log";

export const cursorIndex = signal<number | null>(null);
export const cursorPoint = computed(() => {
  const index = cursorIndex.value;
  return index === null ? null : (timeline.data.value?.points[index] ?? null);
});
export const unit = computed<Unit>(() => (route.value.params.unit === "tokens" ? "tokens" : "share"));
