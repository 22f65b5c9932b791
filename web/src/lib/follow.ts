// Reads a body of server-sent events to its end, with a watchdog. Pure: the parser and the web platform only.
import { type Message, sseParser } from "./sse";

/** The stream went quiet for longer than its heartbeats allow. */
export class SilentStream extends Error {}

/**
 * Delivers every message of the body until it ends.
 *
 * @param quietMs this long without a single byte means that the connection is dead
 * @throws SilentStream after that, and whatever reading the body throws
 */
export async function follow(
  body: ReadableStream<Uint8Array>,
  deliver: (message: Message) => void,
  quietMs = Number.POSITIVE_INFINITY,
): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const feed = sseParser(deliver);
  try {
    for (;;) {
      const { done, value } = await within(reader.read(), quietMs);
      if (done) return;
      feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  if (!Number.isFinite(ms)) return promise;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new SilentStream(`nothing was heard for ${ms / 1e3} s`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
