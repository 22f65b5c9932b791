// How numbers, sizes, times and names are written, on every screen the same. Pure: imports nothing.
// A value that does not exist is an em dash, never a zero.

export const NONE = "—";
const THIN = "\u202f";
const NBSP = "\u00a0";

/** A whole number with thin spaces between thousands: `18 204`. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const sign = value < 0 ? "−" : "";
  return sign + String(Math.round(Math.abs(value))).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

/** `1 block`, `2 blocks`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)}${NBSP}${value === 1 ? one : many}`;
}

/** A rate from 0 to 1 as `62 %`. What is not quite nothing, or not quite all, does not round to it. */
export function percent(rate: number | null | undefined): string {
  if (rate === null || rate === undefined || !Number.isFinite(rate)) return NONE;
  if (rate > 0 && rate < 0.01) return `<${NBSP}1${NBSP}%`;
  if (rate > 0.99 && rate < 1) return `>${NBSP}99${NBSP}%`;
  return `${Math.round(rate * 100)}${NBSP}%`;
}

/** `part` of `whole` as a percentage; no traffic is a dash. */
export function share(part: number | null | undefined, whole: number | null | undefined): string {
  return percent(ratio(part, whole));
}

export function ratio(part: number | null | undefined, whole: number | null | undefined): number | null {
  return part === null || part === undefined || !whole ? null : part / whole;
}

/** Bytes in powers of 1024: `1.2 MiB`. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let rest = value;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${digits(rest, unit === 0)}${NBSP}${units[unit]}`;
}

/** A length of time in nanoseconds with the unit that suits it: `340 µs`, `31 ms`, `3.1 s`, `12 m`, `2 h 5 m`, `3 d 4 h`. */
export function duration(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return NONE;
  if (ns < 0) return `−${duration(-ns)}`;
  if (ns < 1e3) return `${Math.round(ns)}${NBSP}ns`;
  if (ns < 999.5e3) return `${digits(ns / 1e3)}${NBSP}µs`;
  if (ns < 999.5e6) return `${digits(ns / 1e6)}${NBSP}ms`;
  if (ns < 59.95e9) return `${digits(ns / 1e9)}${NBSP}s`;
  const minutes = Math.round(ns / 60e9);
  if (minutes < 60) return `${minutes}${NBSP}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return two(hours, "h", minutes % 60, "m");
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

function two(big: number, bigUnit: string, small: number, smallUnit: string): string {
  return `${big}${NBSP}${bigUnit}${small ? ` ${small}${NBSP}${smallUnit}` : ""}`;
}

function digits(value: number, whole = false): string {
  return whole || value >= 9.95 ? String(Math.round(value)) : value.toFixed(1).replace(/\.0$/, "");
}

/**
 * How long before `nowMs` a wall time was: `3 s ago`, `now`. What a replay wrote may be still to come, `in 3 m`; less
 * than a minute of that is two clocks that differ.
 */
export function ago(wallNs: number, nowMs: number): string {
  const ns = nowMs * 1e6 - wallNs;
  if (ns <= -60e9) return `in ${duration(-ns)}`;
  if (ns < 1e9) return "now";
  return `${duration(ns < 60e9 ? Math.floor(ns / 1e9) * 1e9 : ns)} ago`;
}

const pad = (value: number, width = 2) => String(value).padStart(width, "0");

/** Local time of day: `12:03:07`. */
export function clock(wallNs: number, millis = false): string {
  const at = new Date(wallNs / 1e6);
  const text = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return millis ? `${text}.${pad(at.getMilliseconds(), 3)}` : text;
}

/** Local date and time: `2026-11-30 12:03:07`. */
export function exact(wallNs: number, millis = false): string {
  const at = new Date(wallNs / 1e6);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(wallNs, millis)}`;
}

/** A request id as tables show it: without vLLM's endpoint prefix, the first characters only. */
export function shortId(id: string | null | undefined, length = 8): string {
  if (!id) return NONE;
  const bare = id.replace(/^(chatcmpl|cmpl|embd|resp)-/, "");
  return bare.length > length + 2 ? bare.slice(0, length) : bare;
}

/** A block hash (hex) as tables show it. */
export function shortHash(hash: string | null | undefined): string {
  return hash ? hash.slice(0, 8) : NONE;
}

/** Blocks `first … first + n − 1` as `[4–9]`. */
export function span(first: number, numBlocks: number): string {
  return numBlocks > 1 ? `[${first}–${first + numBlocks - 1}]` : `[${first}]`;
}
