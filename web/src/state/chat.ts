// The chat box: the conversation, the reply that is coming, and what each reply cost.
import { signal } from "@preact/signals";
import { type ChatMessage, type ChatUsage, complete, listModels } from "../api/chat";
import { ApiError } from "../api/client";
import { noteRefusal } from "./access";

export interface Turn extends ChatMessage {
  key: number;
  /** Of a reply: the completion's id, from which its request is found. */
  requestId: string | null;
  usage: ChatUsage | null;
  /** From sending to the first piece of text, as this browser saw it. */
  ttftNs: number | null;
  error: string | null;
}

/** `undefined`: not asked yet; null: this server has no OpenAI routes. */
export const models = signal<string[] | null | undefined>(undefined);
export const modelsError = signal<string | null>(null);
export const turns = signal<readonly Turn[]>([]);
export const isReplying = signal(false);
let running: AbortController | null = null;
let nextKey = 0;

export async function findModels(): Promise<void> {
  try {
    models.value = await listModels(new AbortController().signal);
    modelsError.value = null;
  } catch (error) {
    noteRefusal(error);
    modelsError.value = error instanceof Error ? error.message : String(error);
  }
}

export function startOver(): void {
  running?.abort();
  turns.value = [];
}

export function stopReply(): void {
  running?.abort();
}

/** Sends what was typed together with all turns before it. */
export async function send(text: string, model: string, maxTokens: number): Promise<void> {
  if (isReplying.value) return;
  const blank = { requestId: null, usage: null, ttftNs: null, error: null };
  const asked: Turn = { ...blank, key: nextKey++, role: "user", content: text };
  const reply: Turn = { ...blank, key: nextKey++, role: "assistant", content: "" };
  const history = [...turns.value.filter((turn) => turn.error === null), asked];
  turns.value = [...turns.value, asked, reply];
  const update = (changes: Partial<Turn>) => {
    turns.value = turns.value.map((turn) => (turn.key === reply.key ? { ...turn, ...changes } : turn));
  };
  const current = () => turns.value.find((turn) => turn.key === reply.key);

  running = new AbortController();
  isReplying.value = true;
  const sentAt = performance.now();
  try {
    await complete(
      model,
      history.map(({ role, content }) => ({ role, content })),
      maxTokens,
      {
        named: (requestId) => update({ requestId }),
        text: (delta) => {
          const so = current();
          update({
            content: (so?.content ?? "") + delta,
            ttftNs: so?.ttftNs ?? (performance.now() - sentAt) * 1e6,
          });
        },
        usage: (usage) => update({ usage }),
      },
      running.signal,
    );
  } catch (error) {
    if (running.signal.aborted) {
      if (current()?.content === "") update({ error: "stopped before the first token" });
    } else {
      noteRefusal(error);
      const words = error instanceof ApiError ? error.message : "the connection broke off";
      update({ error: words });
    }
  } finally {
    isReplying.value = false;
    running = null;
  }
}
