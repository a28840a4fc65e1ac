import type { DependentModel } from "@/api/types";
import { listed, plural } from "@/format/text";

export interface DeletionWords {
  /** One sentence for each model that loses replicas. */
  stops: string[];
  /** Further consequences. */
  notes: string[];
}

/** The consequences of a delete for models and for nodes that join later. */
export function deletionWords(
  backend: string,
  models: readonly DependentModel[],
  isEverywhere: boolean,
): DeletionWords {
  const stopping = models.filter(({ replicas }) => replicas > 0);
  const idle = models.filter(({ replicas }) => replicas === 0).map(({ model }) => model);
  const notes = [
    idle.length === 0
      ? ""
      : `${stopping.length > 0 ? "Also used" : "Used"} by ${listed(idle)}, which ${idle.length === 1 ? "is" : "are"} not running there now.`,
    stopping.length === 0 ? "" : `Stopped models load again after ${backend} is reinstalled.`,
    isEverywhere ? "Nodes that join later do not get it." : "",
  ];
  return {
    stops: stopping.map(({ model, replicas }) => `Stops ${plural(replicas, "replica")} of ${model}.`),
    notes: notes.filter((note) => note !== ""),
  };
}
