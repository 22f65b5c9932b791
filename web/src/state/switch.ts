// The re-store switch: sends a change and keeps the server's answer. Nothing is shown before an engine has said it.
import { signal } from "@preact/signals";
import { api } from "../api/client";
import type { PolicyChange } from "../api/types";
import { noteRefusal } from "./access";
import { policy } from "./log";

/** A change is on its way to the server. */
export const isAsking = signal(false);
/** Why the last change was refused. */
export const refusal = signal<string | null>(null);

export async function change(changes: PolicyChange): Promise<void> {
  if (isAsking.value) return;
  isAsking.value = true;
  refusal.value = null;
  try {
    policy.data.value = await api.changePolicy(changes);
  } catch (error) {
    noteRefusal(error);
    refusal.value = error instanceof Error ? error.message : String(error);
  } finally {
    isAsking.value = false;
    void policy.refresh();
  }
}
