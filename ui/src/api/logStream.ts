/** The live log of a process on a node. */
import { EventParser } from "@/live/sse";
import { errorFromAnswer, unreachable } from "./errors";
import { pathOf } from "./http";
import type { LogLine } from "./types";

type LogMessage =
  { type: "initial"; lines: LogLine[] } | { type: "line"; line: LogLine } | { type: "error"; message: string };

export interface LogHandlers {
  /** All current lines; they replace those of an earlier connection. */
  onInitial: (lines: LogLine[]) => void;
  onLines: (lines: LogLine[]) => void;
}

/** Returns when the worker or the frontend ends the stream; throws an error that they report. */
export async function streamLog(
  nodeId: string,
  processKey: string,
  handlers: LogHandlers,
  signal: AbortSignal,
): Promise<void> {
  let response: Response;
  try {
    response = await fetch(pathOf("api", "nodes", nodeId, "backend-logs", processKey, "follow"), {
      headers: { Accept: "text/event-stream" },
      credentials: "same-origin",
      cache: "no-store",
      signal,
    });
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw unreachable();
  }
  if (!response.ok) throw errorFromAnswer(response.status, response.statusText, await response.text());
  if (response.body === null) throw unreachable();
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const messages = parser.push(value).map(({ data }) => JSON.parse(data) as LogMessage);
    for (const message of messages) {
      if (message.type === "error") throw new Error(message.message);
      if (message.type === "initial") handlers.onInitial(message.lines);
    }
    const lines = messages.flatMap((message) => (message.type === "line" ? [message.line] : []));
    if (lines.length > 0) handlers.onLines(lines);
  }
}
