// Light or dark: the reader's system decides until the switch in the header says otherwise.
import { computed, effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const NAME = "vllm-restore-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(system.matches);
system.addEventListener("change", () => {
  systemIsDark.value = system.matches;
});

function stored(): Theme {
  try {
    const text = localStorage.getItem(NAME);
    return text === "light" || text === "dark" ? text : "auto";
  } catch {
    return "auto";
  }
}

export const theme = signal<Theme>(stored());
export const isDark = computed(() => (theme.value === "auto" ? systemIsDark.value : theme.value === "dark"));

effect(() => {
  document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
});

/** Turns to the other one; where that is what the system says anyway, the system decides again. */
export function flipTheme(): void {
  const next = isDark.value ? "light" : "dark";
  theme.value = (next === "dark") === systemIsDark.value ? "auto" : next;
  try {
    if (theme.value === "auto") localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, theme.value);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}
