// What kind of server this page comes from: vLLM's own, or one that shows a recorded log alone.
import { computed, effect, untracked } from "@preact/signals";
import { api } from "../api/client";
import { connection } from "./live";
import { Resource } from "./resource";

export const health = new Resource((abort) => api.health(abort));

/** Whether the server has no model to talk to; false until it has said so. */
export const isAlone = computed(() => health.data.value?.is_recorded === true);

/** Asks at the start, and again whenever a server answers after it did not. */
export function startServer(): void {
  const isOpen = computed(() => connection.value === "open");
  effect(() => {
    isOpen.value;
    untracked(() => void health.refresh());
  });
}
