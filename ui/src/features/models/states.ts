import type { Load, Model, Scheduling } from "@/api/types";
import { formatBytes } from "@/format/bytes";
import { formatSelector } from "@/format/selector";
import { plural, sentence, stopped } from "@/format/text";

const LOAD_WORDS: Record<string, string> = {
  pending: "Waiting",
  installing: "Installing the backend",
  staging: "Fetching files",
  loading: "Starting",
  failed: "Failed",
};

export const loadWord = (state: string) => LOAD_WORDS[state] ?? state;

const DEVICES: Record<string, string> = {
  cpu: "a processor",
  nvidia: "an NVIDIA GPU",
  amd: "an AMD GPU",
  intel: "an Intel GPU",
  apple: "an Apple GPU",
};

/** The most memory that a replica was seen to take. */
export function footprintWords(footprint: Record<string, number>): string {
  const measured = Object.entries(footprint).map(
    ([device, bytes]) => `${formatBytes(bytes)} on ${DEVICES[device] ?? device}`,
  );
  return measured.length === 0 ? "not measured yet" : measured.join(", ");
}

/** Of several files the one that is on its way. */
export function whichFile(load: Pick<Load, "state" | "file_index" | "total_files">): string {
  return load.state === "staging" && load.file_index > 0 && load.total_files > 1
    ? `file ${load.file_index} of ${load.total_files}`
    : "";
}

/** Why the newest configuration does not serve yet. */
export function pendingWords({ reason, held }: NonNullable<Model["pending"]>): string {
  const why = reason === "" ? "It is being loaded." : stopped(sentence(reason));
  return held ? `${why} It is not tried again by itself: what serves would have to stop for it.` : why;
}

export function readSelector(scheduling: Scheduling | undefined): Record<string, string> {
  if (scheduling?.node_selector === undefined) return {};
  return JSON.parse(scheduling.node_selector) as Record<string, string>;
}

/** With how many are ready of those that are wanted, while they are too few. */
export function schedulingWords(scheduling: Scheduling | undefined, ready = Infinity): string {
  if (scheduling === undefined) return "loaded when it is first asked for";
  const selector = readSelector(scheduling);
  const where = Object.keys(selector).length === 0 ? "" : ` on nodes with ${formatSelector(selector)}`;
  if (scheduling.spread_all === true) return `on every node${where === "" ? "" : where.replace(" on nodes", "")}`;
  const { min_replicas: least, max_replicas: most } = scheduling;
  if (least === 0 && most === 0) return `loaded when it is first asked for${where}`;
  if (ready < least) return `${shareWords(scheduling, ready)}${where}`;
  if (most === 0) return `at least ${least}${where}`;
  return `${least === most ? least : `${least} to ${most}`} ${most === 1 ? "replica" : "replicas"}${where}`;
}

/** Whether Corral would load it again by itself. */
export function isKeptRunning(scheduling: Scheduling | undefined): boolean {
  return scheduling !== undefined && (scheduling.spread_all === true || scheduling.min_replicas > 0);
}

/** What unloading a model does. */
export function unloadWords(replicas: number, loads: number): string {
  const stops =
    replicas === 0
      ? ""
      : `${plural(replicas, "replica stops", "replicas stop")} when what ${replicas === 1 ? "it is" : "they are"} answering is finished.`;
  const calledOff = loads === 0 ? "" : "What is being loaded is called off.";
  return [stops, calledOff, "Its configuration stays, and the next request loads it again."].filter(Boolean).join(" ");
}

/** What unloading it from one node does, of the replicas there and those elsewhere. */
export function unloadWordsOnNode(here: number, elsewhere: number, scheduling: Scheduling | undefined): string {
  const stops = `${here > 1 ? `Its ${here} replicas there stop when what they are` : "Its replica there stops when what it is"} answering is finished.`;
  const isReplaced =
    isKeptRunning(scheduling) && (scheduling?.spread_all === true || elsewhere < (scheduling?.min_replicas ?? 0));
  if (isReplaced)
    return `${stops} Its scaling is “${schedulingWords(scheduling)}”, so Corral starts another, there or elsewhere.`;
  return elsewhere > 0
    ? `${stops} Requests go to ${plural(elsewhere, "other replica", "other replicas")}.`
    : `${stops} No other replica is there: the next request loads it again.`;
}

function shareWords({ min_replicas: least, max_replicas: most }: Scheduling, ready: number): string {
  return `${ready} of ${least === most ? "" : "at least "}${plural(least, "replica")}`;
}

/** Of a model that serves: what the replicas that are to come wait for, or why they failed. */
export function restWords(
  scheduling: Scheduling | undefined,
  ready: number,
  { waits, failed }: { waits: string; failed: string },
): string {
  if (ready === 0 || (waits === "" && failed === "")) return "";
  const missing = scheduling === undefined || scheduling.spread_all === true ? 0 : scheduling.min_replicas - ready;
  const share = scheduling !== undefined && missing > 0 ? shareWords(scheduling, ready) : plural(ready, "replica");
  const rest = missing > 1 ? "the others" : missing === 1 ? "the other" : "another";
  return `${share}; ${rest} ${failed !== "" ? "failed" : missing > 1 ? "wait" : "waits"}: ${failed || waits}`;
}
