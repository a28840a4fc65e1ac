import { errorFromAnswer, unreachable } from "./errors";
import type { JoinCommand, Node, Session, SystemStatus } from "./types";

type Method = "GET" | "POST" | "PATCH" | "DELETE";

/** No answer of these is slow by nature; past this, the connection is as good as dead. */
const ANSWER_WITHIN_MS = 20_000;

async function send(method: Method, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const limit = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const headers: Record<string, string> = { Accept: "application/json" };
  // A form on another site cannot set this header, so the frontend knows that a change comes from this UI.
  if (method !== "GET") headers["X-Corral-Client"] = "ui";
  if (body !== undefined) headers["Content-Type"] = "application/json";

  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw unreachable();
  }
  if (!response.ok) throw errorFromAnswer(response.status, response.statusText, await response.text());
  return response;
}

async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await send("GET", path, undefined, signal);
  return (await response.json()) as T;
}

async function change(method: Method, path: string, body?: unknown): Promise<void> {
  const response = await send(method, path, body);
  // What was asked for is shown once it is read back, so the answer's body is of no use; reading it frees the connection.
  await response.text();
}

// Paths are relative to the page: the UI follows Corral wherever a proxy puts it.
const nodePath = (id: string) => `api/nodes/${encodeURIComponent(id)}`;

export const api = {
  readSession: (signal?: AbortSignal) => read<Session>("api/session", signal),
  signIn: async (apiKey: string): Promise<Session> => {
    const response = await send("POST", "api/session", { api_key: apiKey });
    return (await response.json()) as Session;
  },
  signOut: () => change("DELETE", "api/session"),

  listNodes: (signal?: AbortSignal) => read<Node[]>("api/nodes", signal),
  approveNode: (id: string) => change("POST", `${nodePath(id)}/approve`),
  drainNode: (id: string) => change("POST", `${nodePath(id)}/drain`),
  resumeNode: (id: string) => change("POST", `${nodePath(id)}/resume`),
  removeNode: (id: string) => change("DELETE", nodePath(id)),
  mergeLabels: (id: string, labels: Record<string, string>) => change("PATCH", `${nodePath(id)}/labels`, labels),
  removeLabel: (id: string, key: string) => change("DELETE", `${nodePath(id)}/labels/${encodeURIComponent(key)}`),

  readJoinCommand: (signal?: AbortSignal) => read<JoinCommand>("api/join-command", signal),
  readStatus: (signal?: AbortSignal) => read<SystemStatus>("api/status", signal),
};
