// The time of day, once a second, and whether anyone is looking. A tab in the background ticks not at all.
import { signal } from "@preact/signals";

export const visible = signal(document.visibilityState !== "hidden");
export const nowMs = signal(Date.now());

document.addEventListener("visibilitychange", () => {
  visible.value = document.visibilityState !== "hidden";
  if (visible.value) nowMs.value = Date.now();
});

window.setInterval(() => {
  if (visible.value) nowMs.value = Date.now();
}, 1000);
