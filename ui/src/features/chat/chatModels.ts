import type { Model } from "@/api/types";

/** Names of models that can chat, each with the model that serves it: an alias is served by another model. */
export type ChatModels = ReadonlyMap<string, string>;

type Named = Pick<Model, "name" | "alias_of" | "disabled" | "embeddings">;

export function chatModels(models: readonly Named[]): ChatModels {
  const talking = new Set(
    models
      .filter(({ alias_of, disabled, embeddings }) => alias_of === "" && !disabled && !embeddings)
      .map(({ name }) => name),
  );
  const names = models
    .filter(({ disabled }) => !disabled)
    .map(({ name, alias_of }) => [name, alias_of || name] as const);
  return new Map(names.filter(([, served]) => talking.has(served)));
}
