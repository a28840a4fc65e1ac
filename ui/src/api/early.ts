/** Answers that public/early.js asked for before this code was there. Each is taken once, and soon or not at all. */

declare global {
  interface Window {
    corralEarly?: Record<string, Promise<Response>>;
  }
}

const TAKEN_WITHIN_MS = 10_000;

/** Null where there is none that is of use: the request is then made as always, and what is wrong shows there. */
export async function takeEarly(path: string): Promise<Response | null> {
  const answer = window.corralEarly?.[path];
  if (answer === undefined) return null;
  delete window.corralEarly?.[path];
  if (performance.now() > TAKEN_WITHIN_MS) return null;
  const response = await answer.catch(() => null);
  return response?.ok ? response : null;
}
