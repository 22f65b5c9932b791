// The table of requests (page, state, search in the address bar) and the one request whose page is open.
import { effect, untracked } from "@preact/signals";
import { api } from "../api/client";
import { attempts } from "./access";
import { nowMs, visible } from "./clock";
import { pulse } from "./live";
import { route } from "./location";
import { isLive, logSpan } from "./log";
import { Resource } from "./resource";

export const PAGE_ROWS = 50;
const FIRST_ROWS = 16;
const EVERY_MS = 2000;

export const page = new Resource((abort) => {
  const { view, params } = route.peek();
  if (view !== "requests") return api.requests({ limit: FIRST_ROWS }, abort);
  const { before, state, search } = params;
  return api.requests({ limit: PAGE_ROWS, before, state, search }, abort);
});

export const detail = new Resource((abort) => api.request(route.peek().id ?? "", abort));

export function startRequests(): void {
  let readAt = 0;
  let readPulse = -1;
  let shownId: string | null = null;
  let shownTable = "";

  effect(() => {
    const { view, id, params } = route.value;
    attempts.value;
    untracked(() => {
      if (view === "request") {
        if (id !== shownId) detail.clear();
        else if (detail.data.peek() !== null) return;
        shownId = id;
        void detail.reload();
      } else if (view === "now" || view === "requests") {
        const table = JSON.stringify([view, params.before, params.state, params.search, attempts.peek()]);
        if (table === shownTable) return;
        shownTable = table;
        void page.reload();
      }
    });
  });

  effect(() => {
    const now = nowMs.value;
    if (!visible.value) return;
    untracked(() => {
      const { view } = route.peek();
      const age = now - readAt;
      const isNew = pulse.peek() !== readPulse;
      if (logSpan.peek() === null || !((isNew && age >= EVERY_MS) || (isLive.peek() && age >= 5 * EVERY_MS))) return;
      readAt = now;
      readPulse = pulse.peek();
      if (view === "request" && detail.data.peek()?.request.state !== "finished") void detail.refresh();
      else if (view === "now" || view === "requests") void page.refresh();
    });
  });
}
