// The two plain lists that have a view of their own: the policy's history, and through state/log the engines.
import { effect, untracked } from "@preact/signals";
import { api } from "../api/client";
import { attempts } from "./access";
import { pulse } from "./live";
import { route } from "./location";
import { policy } from "./log";
import { Resource } from "./resource";

export const policyHistory = new Resource((abort) => api.policyHistory(abort));

export function startLists(): void {
  effect(() => {
    const isShown = route.value.view === "policy";
    attempts.value;
    // A new version, or an engine's answer to it, changes the history.
    policy.data.value?.version;
    const isFresh = policyHistory.data.peek() !== null;
    if (isShown) untracked(() => void (isFresh ? policyHistory.refresh() : policyHistory.reload()));
  });
  effect(() => {
    pulse.value;
    untracked(() => {
      if (route.peek().view === "policy" && policyHistory.data.peek() !== null) void policyHistory.refresh();
    });
  });
}
