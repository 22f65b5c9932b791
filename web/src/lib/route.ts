// What the address bar holds: the view, the time range, the filters, the selection. Pure: imports nothing.
// It all stands behind the `#`, so that the server has one page and any address can be sent to someone else.

export type View =
  | "now"
  | "misses"
  | "benefit"
  | "whatif"
  | "tier"
  | "conversations"
  | "conversation"
  | "requests"
  | "request"
  | "policy"
  | "engines"
  | "chat";

export interface Route {
  view: View;
  /** The request of the view `request`, the conversation of the view `conversation`. */
  id: string | null;
  params: Readonly<Record<string, string>>;
}

const VIEWS: readonly View[] = [
  "now",
  "misses",
  "benefit",
  "whatif",
  "tier",
  "conversations",
  "requests",
  "policy",
  "engines",
  "chat",
];

/** The views of one thing, and the list that each stands under: `#/requests/ID` is a request. */
const THINGS: Readonly<Partial<Record<View, View>>> = { requests: "request", conversations: "conversation" };

/** Reads a location hash. What it does not know becomes the first screen. */
export function parseRoute(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const mark = text.indexOf("?");
  const path = mark < 0 ? text : text.slice(0, mark);
  const params = Object.fromEntries(new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1)));
  const [head = "", ...tail] = path.split("/");
  const view = VIEWS.find((v) => v === head) ?? "now";
  const thing = THINGS[view];
  if (thing && tail[0]) return { view: thing, id: decode(tail.join("/")), params };
  return { view, id: null, params };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Writes a location hash; empty parameters are left out and the rest stand in a fixed order. */
export function formatRoute(view: View, id: string | null, params: Record<string, string | null | undefined>): string {
  const list = listOf(view);
  const path = view === "now" ? "" : list === view ? view : `${list}/${encodeURIComponent(id ?? "")}`;
  const query = new URLSearchParams();
  for (const key of Object.keys(params).sort()) {
    const value = params[key];
    if (value) query.set(key, value);
  }
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** The list that a view of one thing belongs to; of any other view, the view itself. */
export function listOf(view: View): View {
  return VIEWS.find((list) => THINGS[list] === view) ?? view;
}
