import type { NodeProgressStatus, Operation, OperationNode } from "@/api/types";
import type { Tone } from "@/components/Pill";
import type { Held } from "@/data/nodes";
import { awaited, named, tally } from "@/data/operations";
import { formatBytes, formatShare } from "@/format/bytes";
import { formatEta, formatRate } from "@/format/rates";
import { plural } from "@/format/text";
import { formatDuration } from "@/format/time";

const PILLS: Record<NodeProgressStatus, { word: string; tone: Tone }> = {
  queued: { word: "Queued", tone: "grey" },
  downloading: { word: "Downloading", tone: "blue" },
  running_on_worker: { word: "Unconfirmed", tone: "yellow" },
  success: { word: "Done", tone: "green" },
  error: { word: "Failed", tone: "red" },
  not_applicable: { word: "Not applicable", tone: "grey" },
  cancelled: { word: "Cancelled", tone: "grey" },
};

/** The API has one status for everything in progress; only an install or an upgrade downloads. */
export function pillOf(status: NodeProgressStatus, verb: string): { word: string; tone: Tone } {
  const pill = PILLS[status];
  if (status !== "downloading") return pill;
  return { ...pill, word: verb === "delete" ? "Deleting" : verb === "rollback" ? "Rolling back" : pill.word };
}

export function unconfirmedText(verb: string): string {
  return `The worker has not replied yet. Corral will keep checking; the ${verb} is not started twice.`;
}

const VERBS: Record<string, string> = {
  install: "Install",
  upgrade: "Upgrade",
  rollback: "Roll back",
  delete: "Delete",
  pin: "Pin",
  follow: "Follow the galleries with",
};

export function verbWord(verb: string): string {
  return VERBS[verb] ?? verb;
}

export function titleOf(operation: Pick<Operation, "verb" | "name">): string {
  return `${verbWord(operation.verb)} ${operation.name}`;
}

/** "2 of 5 nodes done", with failures and a cancellation in progress. */
export function summaryOf(operation: Operation): string {
  const { done, failed, total } = tally(operation);
  if (operation.verb === "follow") return "its pins have ended";
  if (operation.state === "cancelled") return `cancelled, ${done} of ${plural(total, "node")} done`;
  if (total === 0) return operation.nodes.length === 0 ? "no nodes yet" : "not applicable to any node";
  const parts = [`${done} of ${plural(total, "node")} done`];
  if (failed > 0) parts.push(`${failed} failed`);
  if (operation.state === "running" && !operation.cancellable) parts.push("cancelling");
  return parts.join(", ");
}

/** A node's progress in percent; null while its total size is unknown. */
export function shareOf({
  bytes_done,
  bytes_total,
  percentage,
}: Pick<OperationNode, "bytes_done" | "bytes_total" | "percentage">): number | null {
  return percentage === 0 && (bytes_total ?? 0) === 0 && (bytes_done ?? 0) > 0 ? null : percentage;
}

/** A node's phase, bytes, percentage, rate and time left, as far as they are known. */
export function progressWords(node: OperationNode): string {
  if (node.status !== "downloading" && node.status !== "running_on_worker") return "";
  const share = shareOf(node);
  const bytes =
    node.bytes_done !== null && node.bytes_total !== null && node.bytes_total > 0
      ? formatShare(node.bytes_done, node.bytes_total)
      : node.bytes_done !== null && node.bytes_done > 0
        ? formatBytes(node.bytes_done)
        : "";
  return [
    node.phase === node.status ? "" : node.phase, // the status is shown beside these words
    bytes,
    share === null ? "" : `${Math.round(share)} %`,
    formatRate(node.rate_bytes_per_s),
    formatRate(node.rate_bytes_per_s) === "" ? "" : formatEta(node.eta_s),
  ]
    .filter((part) => part !== "")
    .join(" · ");
}

const HELD_WORDS: Record<Held, string> = {
  offline: "The node is offline; this continues when it returns.",
  drained: "The node is drained; this continues when it is resumed.",
};

/** What a node of an unfinished operation is waiting for. */
export function waitingWords(
  node: Pick<OperationNode, "status" | "attempts" | "next_attempt_at">,
  held: Held | null,
  nowMs: number,
): string {
  if (held !== null && (node.next_attempt_at !== null || node.status === "queued")) return HELD_WORDS[held];
  if (node.next_attempt_at === null) return "";
  const seconds = Math.ceil((Date.parse(node.next_attempt_at) - nowMs) / 1000);
  return `${node.attempts === 0 ? "Retry" : `Attempt ${node.attempts + 1}`} ${seconds > 0 ? `in ${formatDuration(seconds)}` : "due now"}.`;
}

/** A failure stays visible while it is retried, and when only some nodes failed. `held`: nodes without commands. */
export function stateOf(
  operation: Pick<Operation, "state" | "isQueued" | "retrying" | "nodes">,
  held: ReadonlyMap<string, Held>,
): { word: string; tone: Tone } {
  const waitsFor = awaited(operation, held);
  const failed = operation.nodes.some(({ status }) => status === "error");
  if (waitsFor.length > 0) return { word: `Waiting for ${named(waitsFor)}`, tone: failed ? "red" : "grey" };
  if (operation.retrying) return { word: "Retrying", tone: "red" };
  if (operation.state === "running" && failed) return { word: "Partially failed", tone: "red" };
  return {
    word: operation.isQueued ? "Queued" : (STATE_WORDS[operation.state] ?? operation.state),
    tone: stateTone(operation.state),
  };
}

export function stateTone(state: string): Tone {
  if (state === "completed") return "green";
  if (state === "failed") return "red";
  return state === "running" ? "blue" : "grey";
}

export const STATE_WORDS: Record<string, string> = {
  running: "Running",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
};
