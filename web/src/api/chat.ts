// vLLM's own OpenAI routes, as far as the chat box needs them: the model's name and one streamed completion.
import { follow } from "../lib/follow";
import { ApiError, call, problem } from "./client";
import { authHeaders } from "./key";

export interface ChatMessage {
  role: "user" | "assistant";
  content: string;
}

export interface ChatUsage {
  promptTokens: number;
  cachedTokens: number | null;
  outputTokens: number;
}

interface Chunk {
  id?: string;
  choices?: { delta?: { content?: string | null } }[];
  usage?: {
    prompt_tokens: number;
    completion_tokens: number;
    prompt_tokens_details?: { cached_tokens?: number | null } | null;
  } | null;
  error?: { message?: string };
}

export interface ChatHandlers {
  /** The completion's id, as soon as the server names it. */
  named: (id: string) => void;
  text: (delta: string) => void;
  usage: (usage: ChatUsage) => void;
}

/** The models that this server serves, or null where it has no OpenAI routes (a recorded log). */
export async function listModels(signal: AbortSignal): Promise<string[] | null> {
  try {
    const list = await call<{ data?: { id: string }[] }>("/v1/models", { signal });
    return (list.data ?? []).map((model) => model.id);
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 405)) return null;
    throw error;
  }
}

/** Sends the conversation and reports the reply as it comes. Throws ApiError with the server's own words. */
export async function complete(
  model: string,
  messages: readonly ChatMessage[],
  maxTokens: number,
  handlers: ChatHandlers,
  signal: AbortSignal,
): Promise<void> {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...authHeaders() },
    body: JSON.stringify({
      model,
      messages,
      max_completion_tokens: maxTokens,
      temperature: 0,
      stream: true,
      stream_options: { include_usage: true },
    }),
    signal,
  });
  if (!response.ok) throw new ApiError(response.status, await problem(response));
  if (!response.body) throw new ApiError(response.status, "the reply has no body");
  let named = false;
  await follow(response.body, ({ data }) => {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw new ApiError(500, chunk.error.message ?? "the server broke off");
    if (chunk.id && !named) {
      named = true;
      handlers.named(chunk.id);
    }
    const delta = chunk.choices?.[0]?.delta?.content;
    if (delta) handlers.text(delta);
    if (chunk.usage) {
      handlers.usage({
        promptTokens: chunk.usage.prompt_tokens,
        cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? null,
        outputTokens: chunk.usage.completion_tokens,
      });
    }
  });
}
