/** Responses that public/early.js requested before this code was loaded. Each is used once, within a time limit. */

declare global {
  interface Window {
    corralEarly?: Record<string, Promise<Response>>;
  }
}

const TAKEN_WITHIN_MS = 10_000;

/** Null when there is no usable response: the caller then sends the request, which also reports errors. */
export async function takeEarly(path: string): Promise<Response | null> {
  const answer = window.corralEarly?.[path];
  if (answer === undefined) return null;
  delete window.corralEarly?.[path];
  if (performance.now() > TAKEN_WITHIN_MS) return null;
  const response = await answer.catch(() => null);
  return response?.ok ? response : null;
}
