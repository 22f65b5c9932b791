// Every REST call of the dashboard, one function a route. Imports the types and the key, knows nothing of state.
import { authHeaders } from "./key";
import type {
  BenefitView,
  Causes,
  ConversationDetail,
  ConversationPage,
  Engine,
  EventPage,
  Glance,
  Health,
  PolicyChange,
  PolicyHistoryEntry,
  PolicyState,
  RequestDetail,
  RequestPage,
  RetentionView,
  Shadows,
  Summary,
  Tier,
  Timeline,
  WhatIf,
} from "./types";

export const API = "/restore/api";

/** An answer that is not 2xx (its status and its `detail`), or no answer at all (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export type Params = Record<string, string | number | readonly string[] | null | undefined>;

export function withParams(path: string, params: Params): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value === null || value === undefined || value === "") continue;
    if (typeof value === "object") for (const item of value) query.append(key, item);
    else query.set(key, String(value));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** One call; the parsed body of a 2xx answer. */
export async function call<T>(path: string, init: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, {
      ...init,
      headers: { Accept: "application/json", ...authHeaders(), ...(init.headers as Record<string, string>) },
    });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (!response.ok) throw new ApiError(response.status, await problem(response));
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(response.status, "the server's answer is no JSON: is something else listening at this address?");
  }
}

/** The one line that an error answer carries: our `detail`, vLLM's `error.message`, or the status. */
export async function problem(response: Response): Promise<string> {
  const status = `${response.status} ${response.statusText}`.trim();
  try {
    const body = (await response.json()) as { detail?: unknown; error?: { message?: unknown }; message?: unknown };
    if (typeof body.detail === "string") return body.detail;
    if (Array.isArray(body.detail)) {
      return body.detail
        .map((d: { loc?: unknown[]; msg?: string }) => `${d.loc?.slice(1).join(".")}: ${d.msg}`)
        .join("; ");
    }
    const message = body.error?.message ?? body.message;
    return typeof message === "string" ? message : status;
  } catch {
    return status;
  }
}

/** A piece of wall time in milliseconds, and the width of a bucket in seconds where the answer has buckets. */
export interface Window {
  sinceMs: number;
  untilMs: number;
  bucket?: number;
}

export function windowParams({ sinceMs, untilMs, bucket }: Window): Params {
  return { since: wallNs(sinceMs), until: wallNs(untilMs), bucket };
}

/** Milliseconds as the nanoseconds that the API takes: more digits than a number holds exactly. */
const wallNs = (ms: number) => String(BigInt(Math.round(ms)) * 1_000_000n);

export const api = {
  /** Also of a server that says that it is not well. */
  health: async (signal: AbortSignal): Promise<Health> => {
    const response = await fetch("/restore/healthz", { signal, headers: authHeaders() });
    return (await response.json()) as Health;
  },
  policy: (signal: AbortSignal) => call<PolicyState>(`${API}/policy`, { signal }),
  changePolicy: (change: PolicyChange) =>
    call<PolicyState>(`${API}/policy`, {
      method: "PUT",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(change),
    }),
  policyHistory: (signal: AbortSignal) => call<PolicyHistoryEntry[]>(`${API}/policy/history`, { signal }),
  engines: (signal: AbortSignal) => call<Engine[]>(`${API}/engines`, { signal }),
  /** @param untilMs null for now */
  summary: (sinceMs: number, untilMs: number | null, signal: AbortSignal) =>
    call<Summary>(
      withParams(`${API}/summary`, { since: wallNs(sinceMs), until: untilMs === null ? null : wallNs(untilMs) }),
      { signal },
    ),
  timeline: (sinceMs: number, untilMs: number, bucket: number, signal: AbortSignal) =>
    call<Timeline>(withParams(`${API}/timeline`, { since: wallNs(sinceMs), until: wallNs(untilMs), bucket }), {
      signal,
    }),
  requests: (params: Params, signal: AbortSignal) =>
    call<RequestPage>(withParams(`${API}/requests`, params), { signal }),
  request: (id: string, signal: AbortSignal) =>
    call<RequestDetail>(`${API}/requests/${encodeURIComponent(id)}`, { signal }),
  events: (params: Params, signal: AbortSignal) => call<EventPage>(withParams(`${API}/events`, params), { signal }),
  glance: ({ sinceMs, untilMs }: Window, signal: AbortSignal) =>
    call<Glance>(withParams(`${API}/glance`, windowParams({ sinceMs, untilMs })), { signal }),
  causes: (window: Window, signal: AbortSignal) =>
    call<Causes>(withParams(`${API}/causes`, windowParams(window)), { signal }),
  benefit: ({ sinceMs, untilMs }: Window, signal: AbortSignal) =>
    call<BenefitView>(withParams(`${API}/benefit`, windowParams({ sinceMs, untilMs })), { signal }),
  shadows: (window: Window, signal: AbortSignal) =>
    call<Shadows>(withParams(`${API}/shadows`, windowParams(window)), { signal }),
  whatIf: (params: Params, signal: AbortSignal) => call<WhatIf>(withParams(`${API}/whatif`, params), { signal }),
  conversations: (params: Params, signal: AbortSignal) =>
    call<ConversationPage>(withParams(`${API}/conversations`, params), { signal }),
  conversation: (id: string, signal: AbortSignal) =>
    call<ConversationDetail>(`${API}/conversations/${encodeURIComponent(id)}`, { signal }),
  retention: (params: Params, signal: AbortSignal) =>
    call<RetentionView>(withParams(`${API}/retention`, params), { signal }),
  tier: (params: Params, signal: AbortSignal) => call<Tier>(withParams(`${API}/tier`, params), { signal }),
};
