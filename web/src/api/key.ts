// The API key, where the server asks for one: kept for this tab only, sent as a bearer token. Leaf.

const NAME = "vllm-restore-key";
let memory: string | null = null;

export function readKey(): string | null {
  try {
    return sessionStorage.getItem(NAME) ?? memory;
  } catch {
    return memory;
  }
}

/** null forgets it. */
export function writeKey(key: string | null): void {
  memory = key;
  try {
    if (key === null) sessionStorage.removeItem(NAME);
    else sessionStorage.setItem(NAME, key);
  } catch {
    // A browser that forbids storage keeps the key until the page is left.
  }
}

export function authHeaders(): Record<string, string> {
  const key = readKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}
