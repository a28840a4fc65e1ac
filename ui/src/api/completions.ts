/** One streamed answer of `/v1/chat/completions`. */
import { EventParser } from "@/live/sse";
import { errorFromAnswer, unreachable } from "./errors";

export interface ChatMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  temperature?: number;
  top_p?: number;
  max_tokens?: number;
}

export interface ChatHandlers {
  /** The response has begun; the node that serves it. */
  onNode: (node: string) => void;
  onText: (text: string) => void;
  onReasoning: (text: string) => void;
  onUsage: (tokensOut: number) => void;
}

interface Chunk {
  choices?: { delta?: { content?: string | null; reasoning_content?: string | null } }[];
  usage?: { completion_tokens?: number } | null;
  error?: { message?: string } | string;
}

/** Returns when the response is complete; throws an error from the server, also in the middle of it. */
export async function streamChat(request: ChatRequest, handlers: ChatHandlers, signal: AbortSignal): Promise<void> {
  let response: Response;
  try {
    response = await fetch("v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "text/event-stream", "X-Corral-Client": "ui" },
      credentials: "same-origin",
      cache: "no-store",
      signal,
      body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    });
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw unreachable();
  }
  if (!response.ok) throw errorFromAnswer(response.status, response.statusText, await response.text());
  if (response.body === null) throw unreachable();
  handlers.onNode(response.headers.get("x-corral-node") ?? "");
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const event of parser.push(value)) take(event.data, handlers);
  }
}

function take(data: string, handlers: ChatHandlers): void {
  if (data === "[DONE]") return;
  const chunk = JSON.parse(data) as Chunk;
  if (chunk.error !== undefined)
    throw new Error(
      typeof chunk.error === "string" ? chunk.error : (chunk.error.message ?? "the response ended early"),
    );
  const delta = chunk.choices?.[0]?.delta;
  if (delta?.reasoning_content) handlers.onReasoning(delta.reasoning_content);
  if (delta?.content) handlers.onText(delta.content);
  if (chunk.usage?.completion_tokens !== undefined) handlers.onUsage(chunk.usage.completion_tokens);
}
