import type { BackendUse } from "@/api/types";
import { listed, plural } from "@/format/text";

export interface DeletionWords {
  /** A sentence for each model that loses replicas. */
  stops: string[];
  /** What else is to be known of it. */
  notes: string[];
}

/** What a delete means for models and for machines that are yet to come. */
export function deletionWords(backend: string, uses: readonly BackendUse[], isEverywhere: boolean): DeletionWords {
  const stopping = uses.filter(({ replicas }) => replicas > 0);
  const idle = uses.filter(({ replicas }) => replicas === 0).map(({ model }) => model);
  const notes = [
    idle.length === 0
      ? ""
      : `${stopping.length > 0 ? "Also used" : "Used"} by ${listed(idle)}, which ${idle.length === 1 ? "does" : "do"} not run there now.`,
    stopping.length === 0 ? "" : `They come back when ${backend} is installed again.`,
    isEverywhere ? "Machines that join later do not get it either." : "",
  ];
  return {
    stops: stopping.map(({ model, replicas }) => `Stops ${plural(replicas, "replica")} of ${model}.`),
    notes: notes.filter((note) => note !== ""),
  };
}
