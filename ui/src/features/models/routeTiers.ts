import type { PublicRoute, RouteBody } from "@/api/types";

type Tier = RouteBody["tiers"][number];

/** The models of a tier as they are typed, with weights as on the command line: `qwen=3, llama`. */
export function parseTier(text: string): Tier {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean)
    .map((part) => {
      const [, model, weight] = /^(.*?)(?:=(\d+))?$/.exec(part) ?? [];
      return { model: (model ?? part).trim(), weight: weight === undefined ? 1 : Number(weight) };
    });
}

export function tierText(tier: Tier): string {
  return tier.map(({ model, weight }) => (weight === 1 ? model : `${model}=${weight}`)).join(", ");
}

/** Tiers that are left empty are left out. */
export function parseTiers(texts: readonly string[]): Tier[] {
  return texts.map(parseTier).filter((tier) => tier.length > 0);
}

export function tierWords(place: number, count: number): string {
  if (place === 0) return count === 1 ? "Leads to" : "First";
  return count === 2 ? "Fallback" : `Fallback ${place}`;
}

/** Whether no model of it can answer now. */
export const leadsNowhere = (route: PublicRoute) => route.tiers.every((tier) => tier.every(({ ready }) => ready === 0));
