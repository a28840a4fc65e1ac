import { useEffect, useRef, useState } from "react";
import { streamChat, type ChatMessage, type ChatRequest } from "@/api/completions";

/** One answer, as far as it was received. Times are this browser's, in milliseconds since the request was sent. */
export interface Answer {
  text: string;
  reasoning: string;
  node: string;
  tokens: number;
  /** Whether the backend counted the tokens; otherwise the pieces of the stream are counted. */
  tokensAreCounted: boolean;
  firstMs: number | null;
  endedMs: number | null;
  error: unknown;
  stopped: boolean;
}

export type Turn = { role: "user"; text: string } | { role: "assistant"; answer: Answer };

const EMPTY: Answer = {
  text: "",
  reasoning: "",
  node: "",
  tokens: 0,
  tokensAreCounted: false,
  firstMs: null,
  endedMs: null,
  error: null,
  stopped: false,
};

export interface Parameters {
  system: string;
  temperature: string;
  topP: string;
  maxTokens: string;
}

export function buildRequest(model: string, turns: readonly Turn[], parameters: Parameters): ChatRequest {
  const conversation: ChatMessage[] = turns
    .map((turn) =>
      turn.role === "user" ? { role: turn.role, content: turn.text } : { role: turn.role, content: turn.answer.text },
    )
    .filter(({ content }) => content !== "");
  const system: ChatMessage[] = parameters.system.trim() === "" ? [] : [{ role: "system", content: parameters.system }];
  const numbers = { temperature: parameters.temperature, top_p: parameters.topP, max_tokens: parameters.maxTokens };
  const given = Object.entries(numbers).filter(([, text]) => text.trim() !== "" && Number.isFinite(Number(text)));
  return {
    model,
    messages: [...system, ...conversation],
    ...Object.fromEntries(given.map(([name, text]) => [name, Number(text)])),
  };
}

export function useChat() {
  const [turns, setTurns] = useState<Turn[]>([]);
  const [isBusy, setBusy] = useState(false);
  const running = useRef<AbortController | null>(null);
  // It could not be stopped from another page.
  useEffect(() => () => running.current?.abort(), []);

  async function ask(model: string, text: string, parameters: Parameters): Promise<void> {
    const before: Turn[] = [...turns, { role: "user", text }];
    const abort = new AbortController();
    let answer = EMPTY;
    let shown = 0;
    // Tokens arrive faster than a screen shows them.
    const show = () => {
      shown = 0;
      // The conversation was cleared: the rest of the answer is dropped.
      if (running.current === abort) setTurns([...before, { role: "assistant", answer }]);
    };
    const update = (change: Partial<Answer>) => {
      answer = { ...answer, ...change };
      if (shown === 0) shown = requestAnimationFrame(show);
    };
    running.current = abort;
    setBusy(true);
    show();
    const began = performance.now();
    const since = () => performance.now() - began;
    const heard = () => ({
      firstMs: answer.firstMs ?? since(),
      ...(answer.tokensAreCounted ? {} : { tokens: answer.tokens + 1 }),
    });
    try {
      await streamChat(
        buildRequest(model, before, parameters),
        {
          onNode: (node) => update({ node }),
          onText: (piece) => update({ text: answer.text + piece, ...heard() }),
          onReasoning: (piece) => update({ reasoning: answer.reasoning + piece, ...heard() }),
          onUsage: (tokens) => update({ tokens, tokensAreCounted: true }),
        },
        abort.signal,
      );
      answer = { ...answer, endedMs: since() };
    } catch (error) {
      answer = { ...answer, endedMs: since(), ...(abort.signal.aborted ? { stopped: true } : { error }) };
    }
    cancelAnimationFrame(shown);
    show();
    if (running.current !== abort) return;
    running.current = null;
    setBusy(false);
  }

  return {
    turns,
    isBusy,
    ask,
    stop: () => running.current?.abort(),
    clear: () => {
      running.current?.abort();
      running.current = null;
      setTurns([]);
      setBusy(false);
    },
  };
}
