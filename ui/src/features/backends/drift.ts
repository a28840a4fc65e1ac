import type { BackendOnNode, Drift, DriftCause, OnDrift } from "@/api/types";
import type { Tone } from "@/components/Pill";

export const DRIFT_WORDS: Record<DriftCause, { word: string; tone: Tone }> = {
  missing: { word: "Missing", tone: "red" },
  extra: { word: "Unexpected", tone: "violet" },
  wrong_version: { word: "Wrong version", tone: "yellow" },
  wrong_variant: { word: "Wrong build", tone: "yellow" },
  old_process: { word: "Old process", tone: "yellow" },
};

/** What a policy does about drift, as options to choose from. */
export const ON_DRIFT: readonly { value: OnDrift; word: string }[] = [
  { value: "correct", word: "Auto-correct" },
  { value: "report", word: "Report only" },
  { value: "freeze", word: "Freeze version" },
];

/** Several processes may have the same cause; one mark shows all details. */
export function driftsByCause(drifts: readonly Drift[]): { cause: DriftCause; details: string[] }[] {
  const found = new Map<DriftCause, string[]>();
  for (const drift of drifts) found.set(drift.cause, [...(found.get(drift.cause) ?? []), drift.detail]);
  return [...found].map(([cause, details]) => ({ cause, details }));
}

export const shortDigest = (digest: string) => digest.replace(/^sha256:/, "").slice(0, 12);

export function versionWord(place: BackendOnNode): string {
  return place.version !== "" ? place.version : place.digest !== "" ? shortDigest(place.digest) : "";
}
