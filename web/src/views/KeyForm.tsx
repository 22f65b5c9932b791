// Asked for when the API answers 401: the key, kept in this tab's session storage and nowhere else.
import { useEffect, useRef } from "preact/hooks";
import { enterKey, hasKey, refused } from "../state/access";

export function KeyForm() {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = (event: Event) => {
    event.preventDefault();
    const key = field.current?.value.trim();
    if (key) enterKey(key);
  };
  return (
    <main class="view" id="main">
      <form class="key" onSubmit={submit}>
        <h1>This server asks for its API key</h1>
        <p>
          {hasKey.value ? "The key was not accepted" : "It is the one that vLLM was started with, --api-key"}:{" "}
          {refused.value}
        </p>
        <label for="key">API key</label>
        <span class="tools">
          <input id="key" ref={field} type="password" autoComplete="off" required />
          <button type="submit" class="main">
            open
          </button>
        </span>
        <p class="muted">It stays in this tab and is forgotten when the tab is closed.</p>
      </form>
    </main>
  );
}
