// Something that is read from the API again and again: the last good answer, the last error, whether it is being read.
import { type Signal, signal } from "@preact/signals";
import { noteRefusal } from "./access";

/** How many first reads and changed reads are under way: what the thin bar at the top shows. */
export const numWaiting = signal(0);

export class Resource<T> {
  readonly data: Signal<T | null> = signal(null);
  readonly error: Signal<string | null> = signal(null);
  readonly status: Signal<number | null> = signal(null);
  #running: AbortController | null = null;

  constructor(readonly load: (abort: AbortSignal) => Promise<T>) {}

  /** Reads again because what is asked for has changed: an answer still under way is of no use any more. */
  async reload(): Promise<void> {
    this.#running?.abort();
    this.#running = null;
    numWaiting.value += 1;
    try {
      await this.#read();
    } finally {
      numWaiting.value -= 1;
    }
  }

  /** Reads the same thing again, in the background. One read at a time: a slow server is not asked twice. */
  async refresh(): Promise<void> {
    if (this.#running === null) await this.#read();
  }

  /** Forgets the answer: what comes next is something else. */
  clear(): void {
    this.#running?.abort();
    this.#running = null;
    this.data.value = null;
    this.error.value = null;
    this.status.value = null;
  }

  async #read(): Promise<void> {
    const abort = new AbortController();
    this.#running = abort;
    try {
      const data = await this.load(abort.signal);
      if (abort.signal.aborted) return;
      this.data.value = data;
      this.error.value = null;
      this.status.value = 200;
    } catch (error) {
      if (abort.signal.aborted) return;
      noteRefusal(error);
      this.error.value = error instanceof Error ? error.message : String(error);
      this.status.value = (error as { status?: number }).status ?? null;
    } finally {
      if (this.#running === abort) this.#running = null;
    }
  }
}
