// Whether the server asks for a key that this tab does not have yet.
import { signal } from "@preact/signals";
import { ApiError } from "../api/client";
import { readKey, writeKey } from "../api/key";

/** The server's words when it refused for want of a key; null while it does not. */
export const refused = signal<string | null>(null);
/** Counts the keys entered: what was refused is tried again when it changes. */
export const attempts = signal(0);
export const hasKey = signal(readKey() !== null);

/** Notes a refusal. Returns whether the error was one. */
export function noteRefusal(error: unknown): boolean {
  if (!(error instanceof ApiError) || error.status !== 401) return false;
  refused.value = error.message;
  return true;
}

export function enterKey(key: string): void {
  writeKey(key);
  hasKey.value = true;
  refused.value = null;
  attempts.value += 1;
}

export function forgetKey(): void {
  writeKey(null);
  hasKey.value = false;
  attempts.value += 1;
}
