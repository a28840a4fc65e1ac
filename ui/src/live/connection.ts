import { useSyncExternalStore } from "react";
import { errorFromAnswer, isUnauthenticated, unreachable } from "@/api/errors";
import { EventParser, type ServerEvent } from "./sse";

/** What the page knows about its line to the frontend. */
export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  /** `retryAt` is null while an attempt is under way. Times are `Date.now()`. */
  | { state: "reconnecting"; lostAt: number; retryAt: number | null; reason: string };

/** The frontend pings every 15 s: after two missed pings and a little the line is dead, whatever the socket says. */
const SILENCE_LIMIT_MS = 40_000;
/** A page that nobody looks at gives its connection back after this: a browser has only six to one host over HTTP/1.1,
 * and the seventh tab would wait for ever. */
const UNSEEN_LIMIT_MS = 30_000;
const RETRY_BASE_MS = 500;
const RETRY_CAP_MS = 10_000;

/** Half of the wait is fixed, half is chance, so that pages that lost one frontend do not come back all at once. */
export function retryDelayMs(attempt: number, draw: number): number {
  const whole = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** Math.min(attempt, 16));
  return whole / 2 + (draw * whole) / 2;
}

const isSeen = () => document.visibilityState === "visible";

/** The page was out of sight for so long that the line was given up: nothing is wrong. */
class Unseen extends Error {}

export interface LiveHandlers {
  /** The line is up; changes may have been missed, so what is shown must be read again. */
  onConnected: () => void;
  onEvents: (events: ServerEvent[]) => void;
  onSignedOut: () => void;
}

export class LiveLine {
  #connection: Connection = { state: "connecting" };
  #watchers = new Set<() => void>();
  #stop: AbortController | null = null;
  #wake: (() => void) | null = null;

  /** Connects and stays connected until the returned function is called. */
  start(handlers: LiveHandlers): () => void {
    const stop = new AbortController();
    this.#stop?.abort();
    this.#stop = stop;
    this.#set({ state: "connecting" });
    void this.#run(handlers, stop.signal);
    return () => stop.abort();
  }

  retryNow = (): void => this.#wake?.();

  watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  read = (): Connection => this.#connection;

  #set(connection: Connection): void {
    this.#connection = connection;
    for (const watcher of this.#watchers) watcher();
  }

  async #run(handlers: LiveHandlers, stop: AbortSignal): Promise<void> {
    const parser = { current: new EventParser() };
    const isStopped = () => stop.aborted;
    let attempt = 0;
    let lostAt: number | null = null;
    while (!isStopped()) {
      if (!isSeen()) await this.#untilSeen(stop);
      let failure: unknown = null;
      try {
        await this.#listen(parser, stop, {
          ...handlers,
          onConnected: () => {
            attempt = 0;
            lostAt = null;
            this.#set({ state: "live" });
            handlers.onConnected();
          },
        });
      } catch (error) {
        failure = error;
      }
      if (isStopped()) return;
      if (failure instanceof Unseen) {
        this.#set({ state: "connecting" });
        continue;
      }
      if (isUnauthenticated(failure)) {
        handlers.onSignedOut();
        return;
      }
      lostAt ??= Date.now();
      const reason = failure instanceof Error ? failure.message : "The frontend ended the connection.";
      const delayMs = retryDelayMs(attempt++, Math.random());
      this.#set({ state: "reconnecting", lostAt, retryAt: Date.now() + delayMs, reason });
      await this.#pause(delayMs, stop);
      if (!isStopped()) this.#set({ state: "reconnecting", lostAt, retryAt: null, reason });
    }
  }

  /** Ends when the line does: normally when the server closes it, with an error otherwise. */
  async #listen(parser: { current: EventParser }, stop: AbortSignal, handlers: LiveHandlers): Promise<void> {
    const end = new AbortController();
    let timer = setTimeout(() => end.abort(unreachable()), SILENCE_LIMIT_MS);
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => end.abort(unreachable()), SILENCE_LIMIT_MS);
    };
    let unseenTimer: ReturnType<typeof setTimeout> | undefined;
    const onVisibility = () => {
      clearTimeout(unseenTimer);
      if (!isSeen()) unseenTimer = setTimeout(() => end.abort(new Unseen()), UNSEEN_LIMIT_MS);
    };
    document.addEventListener("visibilitychange", onVisibility);
    // An event cut off by the loss of the line must not swallow the start of the next line's first one.
    const resumeFrom = parser.current.lastEventId;
    parser.current = new EventParser();
    parser.current.lastEventId = resumeFrom;
    try {
      const response = await fetch("api/events", {
        headers: { Accept: "text/event-stream", ...(resumeFrom === "" ? {} : { "Last-Event-ID": resumeFrom }) },
        credentials: "same-origin",
        cache: "no-store",
        signal: AbortSignal.any([stop, end.signal]),
      });
      if (!response.ok) throw errorFromAnswer(response.status, response.statusText, await response.text());
      if (response.body === null) throw unreachable();
      handlers.onConnected();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        heard();
        const events = parser.current.push(value);
        if (events.length > 0) handlers.onEvents(events);
      }
    } catch (error) {
      if (end.signal.aborted) throw end.signal.reason;
      throw error instanceof TypeError || error instanceof DOMException ? unreachable() : error;
    } finally {
      clearTimeout(timer);
      clearTimeout(unseenTimer);
      document.removeEventListener("visibilitychange", onVisibility);
    }
  }

  async #untilSeen(stop: AbortSignal): Promise<void> {
    const over = new AbortController();
    await new Promise<void>((resolve) => {
      stop.addEventListener("abort", () => resolve(), { signal: over.signal });
      document.addEventListener("visibilitychange", () => isSeen() && resolve(), { signal: over.signal });
    });
    over.abort();
  }

  /** Ends early when asked to retry, when the device is back on its network, or when the page is looked at again. */
  async #pause(delayMs: number, stop: AbortSignal): Promise<void> {
    const over = new AbortController();
    await new Promise<void>((wake) => {
      const timer = setTimeout(wake, delayMs);
      over.signal.addEventListener("abort", () => clearTimeout(timer));
      this.#wake = wake;
      stop.addEventListener("abort", () => wake(), { signal: over.signal });
      window.addEventListener("online", () => wake(), { signal: over.signal });
      document.addEventListener("visibilitychange", () => isSeen() && wake(), { signal: over.signal });
    });
    over.abort();
    this.#wake = null;
  }
}

export const liveLine = new LiveLine();

export function useConnection(): Connection {
  return useSyncExternalStore(liveLine.watch, liveLine.read);
}
