import type { PolicyException } from "@/api/types";
import { formatAge } from "@/format/time";

const ASKED = { deleted: "delete asked for", installed: "install asked for" };

/** Why a policy does not hold on a machine: "deleted 3 min ago". */
export function exceptionWords(exception: PolicyException, policyBackend: string, now: number): string {
  const { cause, backend, verb, done, at, reason } = exception;
  if (cause === "no_build") return reason;
  const ago = at === null ? "" : ` ${formatAge((now - Date.parse(at)) / 1000)}`;
  if (cause === "called_off") return `${verb} called off${ago}`;
  return `${backend === policyBackend ? "" : `${backend} `}${done ? cause : ASKED[cause]}${ago}`;
}
