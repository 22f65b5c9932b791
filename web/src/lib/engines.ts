// What an engine is called: its data-parallel rank, and the start where that rank was started more than once; and when
// one ran. Pure.
import type { Engine } from "../api/types";

type Named = Pick<Engine, "id" | "dp_index">;

/** `0`, or `0·2` where the second start of the log is not the only one with rank 0. */
export function engineMark(id: number, engines: readonly Named[]): string {
  const engine = engines.find((e) => e.id === id);
  if (!engine) return `·${id}`;
  const isOnly = engines.filter(({ dp_index }) => dp_index === engine.dp_index).length === 1;
  return isOnly ? String(engine.dp_index) : `${engine.dp_index}·${id}`;
}

/** The same in words. */
export function engineWords(id: number, engines: readonly Named[]): string {
  const engine = engines.find((e) => e.id === id);
  return engine ? `engine ${engine.dp_index}, start ${id}` : `start ${id}`;
}

type Lived = Pick<Engine, "started_wall_ns" | "stopped_wall_ns" | "heartbeat_wall_ns" | "is_live">;

/** Whether any engine ran at some time of a piece of wall time, in nanoseconds. */
export function wasUp(fromNs: number, untilNs: number, engines: readonly Lived[]): boolean {
  return engines.some(({ started_wall_ns, stopped_wall_ns, heartbeat_wall_ns, is_live }) => {
    const ended = is_live ? Number.POSITIVE_INFINITY : (stopped_wall_ns ?? heartbeat_wall_ns);
    return started_wall_ns < untilNs && ended >= fromNs;
  });
}
