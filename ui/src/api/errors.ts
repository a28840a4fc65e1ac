/** A failed API call, with a message for people. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    message: string,
    /** The HTTP status, or null when no answer came at all. */
    readonly status: number | null,
    readonly code: string | null,
  ) {
    super(message);
  }

  /** The call may be retried automatically. */
  get isTransient(): boolean {
    return this.status === null || this.status === 429 || this.status >= 500;
  }
}

export function isUnauthenticated(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}

export function unreachable(): ApiError {
  return new ApiError(
    "The Corral frontend is not responding. It may be restarting, or this device has lost its connection.",
    null,
    null,
  );
}

/** Reads `{"error": {"code", "message", "type"}}` and its older form `{"error": "text"}`; a proxy in between may
 * answer with neither. */
export function errorFromAnswer(status: number, statusText: string, body: string): ApiError {
  let error: unknown;
  try {
    error = (JSON.parse(body) as { error?: unknown } | null)?.error;
  } catch {
    // Not JSON, so not from Corral: only the status is known.
    error = undefined;
  }
  if (typeof error === "string" && error !== "") return new ApiError(error, status, null);
  if (typeof error === "object" && error !== null && "message" in error && typeof error.message === "string") {
    const code = "code" in error ? String(error.code) : null;
    return new ApiError(error.message, status, code);
  }
  const statusLine = [String(status), statusText].filter((part) => part !== "").join(" ");
  return new ApiError(`The frontend returned “${statusLine}” without an error message. See its log.`, status, null);
}
