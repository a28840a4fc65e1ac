import type { Load, LoadState, Model, Revision, RevisionChanges, Scheduling } from "@/api/types";
import type { Tone } from "@/components/Pill";
import { formatBytes } from "@/format/bytes";
import { formatSelector } from "@/format/selector";
import { plural, sentence, stopped } from "@/format/text";

export const LOAD_WORDS: Record<LoadState, string> = {
  pending: "Waiting",
  installing: "Installing the backend",
  staging: "Downloading files",
  loading: "Starting",
  failed: "Failed",
};

const DEVICES: Record<string, string> = {
  cpu: "CPU",
  nvidia: "NVIDIA GPU",
  amd: "AMD GPU",
  intel: "Intel GPU",
  apple: "Apple GPU",
};

/** The highest measured memory use of a replica, by device. */
export function footprintWords(footprint: Record<string, number>): string {
  const measured = Object.entries(footprint).map(
    ([device, bytes]) => `${formatBytes(bytes)} on ${DEVICES[device] ?? device}`,
  );
  return measured.length === 0 ? "not measured yet" : measured.join(", ");
}

/** The current file, when a load has several. */
export function whichFile(load: Pick<Load, "state" | "file_index" | "total_files">): string {
  return load.state === "staging" && load.file_index > 0 && load.total_files > 1
    ? `file ${load.file_index} of ${load.total_files}`
    : "";
}

/** Why the newest configuration does not serve yet. */
export function pendingWords({ reason, held }: NonNullable<Model["pending"]>): string {
  const why = reason === "" ? "It is being loaded and tried." : stopped(sentence(reason));
  return held
    ? `${why} It is not retried automatically, because the serving replica would have to stop; “Load” retries it.`
    : why;
}

export const REVISION_WORDS: Record<Revision["state"], { word: string; tone: Tone }> = {
  pending: { word: "Pending", tone: "blue" },
  failed: { word: "Failed", tone: "red" },
  current: { word: "Current", tone: "green" },
  superseded: { word: "Superseded", tone: "grey" },
  discarded: { word: "Discarded", tone: "grey" },
  deleted: { word: "Deleted", tone: "grey" },
};

/** One line for each value that is gone or new. */
export function changeLines(changes: RevisionChanges["changes"]): string {
  return changes
    .flatMap(({ field, before, after }) => [
      before === null ? "" : `- ${field}: ${before}`,
      after === null ? "" : `+ ${field}: ${after}`,
    ])
    .filter(Boolean)
    .join("\n");
}

/** For a revision that no replica was ever ready with, where an earlier one served. */
export function restoreWords(number: number, restorable: number | null | undefined): string {
  return typeof restorable === "number"
    ? `Revision ${number} has never been ready. Roll back to revision ${restorable}, which served before, or edit it.`
    : "";
}

export function readSelector(scheduling: Scheduling | undefined): Record<string, string> {
  return JSON.parse(scheduling?.node_selector ?? "{}") as Record<string, string>;
}

/** The desired replicas, with the number of ready ones while they are too few. */
export function schedulingWords(scheduling: Scheduling | undefined, ready = Infinity): string {
  if (scheduling === undefined) return "on demand (scales to zero)";
  const selector = readSelector(scheduling);
  const where = Object.keys(selector).length === 0 ? "" : ` on nodes with ${formatSelector(selector)}`;
  if (scheduling.spread_all === true) return `on every node${where === "" ? "" : where.replace(" on nodes", "")}`;
  const { min_replicas: least, max_replicas: most } = scheduling;
  if (least === 0 && most === 0) return `on demand (scales to zero)${where}`;
  if (ready < least) return `${shareWords(scheduling, ready)}${where}`;
  if (most === 0) return `at least ${plural(least, "replica")}${where}`;
  return `${least === most ? least : `${least} to ${most}`} ${most === 1 ? "replica" : "replicas"}${where}`;
}

/** Whether Corral would load the model again automatically. */
export function isKeptRunning(scheduling: Scheduling | undefined): boolean {
  return scheduling !== undefined && (scheduling.spread_all === true || scheduling.min_replicas > 0);
}

/** What unloading a model does. */
export function unloadWords(replicas: number, loads: number): string {
  const stops =
    replicas === 0
      ? ""
      : `${plural(replicas, "replica stops after its", "replicas stop after their")} current requests finish.`;
  const cancelled = loads === 0 ? "" : "Loads in progress are cancelled.";
  return [stops, cancelled, "The configuration is kept; the next request loads the model again."]
    .filter(Boolean)
    .join(" ");
}

/** What unloading a model from one node does, given its replicas there and on other nodes. */
export function unloadWordsOnNode(here: number, elsewhere: number, scheduling: Scheduling | undefined): string {
  const stops = `${here > 1 ? `The ${here} replicas on this node stop after their` : "The replica on this node stops after its"} current requests finish.`;
  const isReplaced =
    isKeptRunning(scheduling) && (scheduling?.spread_all === true || elsewhere < (scheduling?.min_replicas ?? 0));
  if (isReplaced)
    return `${stops} Its scaling is “${schedulingWords(scheduling)}”, so Corral starts another replica on this or another node.`;
  return elsewhere > 0
    ? `${stops} Requests go to ${plural(elsewhere, "other replica", "other replicas")}.`
    : `${stops} There is no other replica; the next request loads the model again.`;
}

function shareWords({ min_replicas: least, max_replicas: most }: Scheduling, ready: number): string {
  return `${ready} of ${least === most ? "" : "at least "}${plural(least, "replica")}`;
}

/** For a serving model: what its missing replicas are waiting for, or why they failed. */
export function restWords(
  scheduling: Scheduling | undefined,
  ready: number,
  { waits, failed }: { waits: string; failed: string },
): string {
  if (ready === 0 || (waits === "" && failed === "")) return "";
  const missing = scheduling === undefined || scheduling.spread_all === true ? 0 : scheduling.min_replicas - ready;
  const share = scheduling !== undefined && missing > 0 ? shareWords(scheduling, ready) : plural(ready, "replica");
  const rest = missing > 1 ? "the others" : missing === 1 ? "the other" : "another";
  return `${share}; ${rest} ${failed !== "" ? "failed" : missing > 1 ? "are waiting" : "is waiting"}: ${failed || waits}`;
}
