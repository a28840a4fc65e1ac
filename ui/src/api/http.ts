import { takeEarly } from "./early";
import { errorFromAnswer, unreachable } from "./errors";

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** None of these calls is slow; after this time, the connection counts as dead. */
const ANSWER_WITHIN_MS = 20_000;

interface Extra {
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
  withinMs?: number;
}

export async function send(
  method: Method,
  path: string,
  body?: unknown,
  { signal, headers, withinMs = ANSWER_WITHIN_MS }: Extra = {},
): Promise<Response> {
  const limit = AbortSignal.timeout(withinMs);
  const sent: Record<string, string> = { Accept: "application/json", ...headers };
  // A form on another site cannot set this header, so the frontend knows that a change comes from this UI.
  if (method !== "GET") sent["X-Corral-Client"] = "ui";
  if (body !== undefined) sent["Content-Type"] = "application/json";

  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: sent,
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

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = (await takeEarly(path)) ?? (await send("GET", path, undefined, { signal }));
  return (await response.json()) as T;
}

/** A change whose response is used, such as a key that is shown once. */
export async function ask<T>(method: Method, path: string, body?: unknown, extra?: Extra): Promise<T> {
  const response = await send(method, path, body, extra);
  return (await response.json()) as T;
}

export async function change(method: Method, path: string, body?: unknown, extra?: Extra): Promise<void> {
  const response = await send(method, path, body, extra);
  // The change is shown when it is loaded again, so the body is not used; reading it frees the connection.
  await response.text();
}

/** A path below the page, with every part of it escaped: the UI follows Corral wherever a proxy puts it. */
export function pathOf(...parts: string[]): string {
  return parts.map(encodeURIComponent).join("/");
}

export function query(fields: Record<string, string | number | undefined>): string {
  const pairs = Object.entries(fields).flatMap(([key, value]) =>
    value === undefined || value === "" ? [] : [[key, String(value)]],
  );
  return pairs.length === 0 ? "" : `?${new URLSearchParams(pairs).toString()}`;
}
