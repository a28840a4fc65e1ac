import type { Model } from "@/api/types";

/** Names one can talk to, each with the model that answers: an alias is as loaded as the one it stands for. */
export type Partners = ReadonlyMap<string, string>;

type Named = Pick<Model, "name" | "alias_of" | "disabled" | "embeddings">;

export function chatPartners(models: readonly Named[]): Partners {
  const talking = new Set(
    models
      .filter(({ alias_of, disabled, embeddings }) => alias_of === "" && !disabled && !embeddings)
      .map(({ name }) => name),
  );
  const partners = models
    .filter(({ disabled }) => !disabled)
    .map(({ name, alias_of }) => [name, alias_of || name] as const);
  return new Map(partners.filter(([, served]) => talking.has(served)));
}
