// What stands where nothing has been recorded yet: what is missing, and the line that brings it.
import { models } from "../state/chat";
import { engines, isLive, mainEngine } from "../state/log";
import { isAlone } from "../state/server";

/** Where vLLM listens if nobody told it otherwise. */
const VLLM = "http://127.0.0.1:8000";

export function EmptyLog() {
  return (
    <section class="empty" aria-label="Nothing recorded yet">
      <p class="sentence">No engine has written to this log yet.</p>
      <p>Start vLLM with the re-store connector; this page comes to life by itself:</p>
      <pre>
        <code>make serve</code>
      </pre>
      <p>A log that was recorded elsewhere is opened with:</p>
      <pre>
        <code>vllm-restore dashboard --db path/to/log.db</code>
      </pre>
    </section>
  );
}

/** An engine is there but nobody has asked it anything. */
export function EmptyTraffic() {
  if (!isLive.value || engines.data.value === null) return null;
  const model = models.value?.[0] ?? mainEngine.value?.model.split("/").at(-1) ?? "MODEL";
  return (
    <section class="empty" aria-label="No request yet">
      <p>The engine is up and waits. Send a prompt of a few hundred tokens twice and watch the second one hit:</p>
      <pre>
        <code>{curlLine(model)}</code>
      </pre>
      <p>
        Or let <code>vllm-restore demo</code> drive it for a few minutes.
      </p>
    </section>
  );
}

function curlLine(model: string): string {
  const body = `{"model": "${model}", "max_tokens": 32, "messages": [{"role": "user", "content": "Tell me a story."}]}`;
  return `curl ${isAlone.value ? VLLM : window.location.origin}/v1/chat/completions -H 'Content-Type: application/json' \\\n  -d '${body}'`;
}
