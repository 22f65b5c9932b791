// The live stream of events: one connection, resumed where it broke off. Knows nothing of state.
import { follow } from "../lib/follow";
import { API, ApiError, problem } from "./client";
import { authHeaders } from "./key";
import type { EventRow, Gap } from "./types";

/** The server sends a heartbeat every 10 s; three missed ones mean that nobody is there. */
const QUIET_MS = 32_000;

export interface StreamHandlers {
  opened: () => void;
  event: (event: EventRow) => void;
  /** Rows were skipped, or what is known is of another log: what a view needs has to be read again. */
  gap: (gap: Gap) => void;
}

/**
 * Follows the stream until it ends. Resolves when the server closes it; throws when it cannot be opened or goes quiet.
 *
 * @param after the newest sequence number that is already known
 */
export async function followEvents(after: number, handlers: StreamHandlers, signal: AbortSignal): Promise<void> {
  let response: Response;
  try {
    response = await fetch(`${API}/events/stream`, {
      headers: { Accept: "text/event-stream", "Last-Event-ID": String(after), ...authHeaders() },
      cache: "no-store",
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (!response.ok) throw new ApiError(response.status, await problem(response));
  if (!response.body) throw new ApiError(response.status, "the stream has no body");
  handlers.opened();
  await follow(
    response.body,
    (message) => {
      if (message.event === "gap") handlers.gap(JSON.parse(message.data) as Gap);
      else if (message.event === "log") handlers.event(JSON.parse(message.data) as EventRow);
    },
    QUIET_MS,
  );
}
