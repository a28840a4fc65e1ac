import { useSyncExternalStore } from "react";
import { errorFromAnswer, isUnauthenticated, unreachable } from "@/api/errors";
import { EventParser, type ServerEvent } from "./sse";

/** The state of the event stream from the frontend. */
export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  /** `retryAt` is null while an attempt is in progress. Times are `Date.now()`. */
  | { state: "reconnecting"; lostAt: number; retryAt: number | null; reason: string };

/** The frontend pings every 15 s: after two missed pings the connection is dead, whatever the socket says. */
const SILENCE_LIMIT_MS = 40_000;
/** A hidden page closes its connection after this time: a browser allows six per host over HTTP/1.1, and a seventh tab
 * would wait forever. */
const HIDDEN_LIMIT_MS = 30_000;
const RETRY_BASE_MS = 500;
const RETRY_CAP_MS = 10_000;

/** Half of the delay is random, so that pages that lost one frontend do not reconnect all at once. */
export function retryDelayMs(attempt: number, draw: number): number {
  const whole = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** Math.min(attempt, 16));
  return whole / 2 + (draw * whole) / 2;
}

const isVisible = () => document.visibilityState === "visible";

/** The page was hidden for so long that it closed its connection; this is not a failure. */
class Hidden extends Error {}

export interface LiveHandlers {
  /** Connected. Changes may have been missed, so the data shown must be loaded again. */
  onConnected: () => void;
  onEvents: (events: ServerEvent[]) => void;
  onSignedOut: () => void;
}

export class EventStream {
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
      if (!isVisible()) await this.#untilVisible(stop);
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
      if (failure instanceof Hidden) {
        this.#set({ state: "connecting" });
        continue;
      }
      if (isUnauthenticated(failure)) {
        handlers.onSignedOut();
        return;
      }
      lostAt ??= Date.now();
      const reason = failure instanceof Error ? failure.message : "The frontend closed the connection.";
      const delayMs = retryDelayMs(attempt++, Math.random());
      this.#set({ state: "reconnecting", lostAt, retryAt: Date.now() + delayMs, reason });
      await this.#pause(delayMs, stop);
      if (!isStopped()) this.#set({ state: "reconnecting", lostAt, retryAt: null, reason });
    }
  }

  /** Returns when the server closes the connection; throws when it is lost. */
  async #listen(parser: { current: EventParser }, stop: AbortSignal, handlers: LiveHandlers): Promise<void> {
    const end = new AbortController();
    let timer = setTimeout(() => end.abort(unreachable()), SILENCE_LIMIT_MS);
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => end.abort(unreachable()), SILENCE_LIMIT_MS);
    };
    let hiddenTimer: ReturnType<typeof setTimeout> | undefined;
    const onVisibility = () => {
      clearTimeout(hiddenTimer);
      if (!isVisible()) hiddenTimer = setTimeout(() => end.abort(new Hidden()), HIDDEN_LIMIT_MS);
    };
    document.addEventListener("visibilitychange", onVisibility);
    // A partial event from a lost connection must not corrupt the first event of the next one.
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
      clearTimeout(hiddenTimer);
      document.removeEventListener("visibilitychange", onVisibility);
    }
  }

  async #untilVisible(stop: AbortSignal): Promise<void> {
    const over = new AbortController();
    await new Promise<void>((resolve) => {
      stop.addEventListener("abort", () => resolve(), { signal: over.signal });
      document.addEventListener("visibilitychange", () => isVisible() && resolve(), { signal: over.signal });
    });
    over.abort();
  }

  /** Ends early on a manual retry, when the device is online again, or when the page becomes visible. */
  async #pause(delayMs: number, stop: AbortSignal): Promise<void> {
    const over = new AbortController();
    await new Promise<void>((wake) => {
      const timer = setTimeout(wake, delayMs);
      over.signal.addEventListener("abort", () => clearTimeout(timer));
      this.#wake = wake;
      stop.addEventListener("abort", () => wake(), { signal: over.signal });
      window.addEventListener("online", () => wake(), { signal: over.signal });
      document.addEventListener("visibilitychange", () => isVisible() && wake(), { signal: over.signal });
    });
    over.abort();
    this.#wake = null;
  }
}

export const eventStream = new EventStream();

export function useConnection(): Connection {
  return useSyncExternalStore(eventStream.watch, eventStream.read);
}
