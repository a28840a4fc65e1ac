import type { PolicyException } from "@/api/types";
import { formatAge } from "@/format/time";

const REQUESTED = { deleted: "delete requested", installed: "install requested" };

/** Why a policy does not apply to a node: "deleted 3 min ago". */
export function exceptionWords(exception: PolicyException, policyBackend: string, now: number): string {
  const { cause, backend, verb, done, at, reason } = exception;
  if (cause === "no_build") return reason;
  const ago = at === null ? "" : ` ${formatAge((now - Date.parse(at)) / 1000)}`;
  if (cause === "cancelled") return `${verb} cancelled${ago}`;
  return `${backend === policyBackend ? "" : `${backend} `}${done ? cause : REQUESTED[cause]}${ago}`;
}
