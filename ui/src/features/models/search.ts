export type ModelsTab = "installed" | "routes" | "gallery";

export interface ModelsSearch {
  tab?: ModelsTab;
  q?: string;
  /** The model whose details are shown. */
  open?: string;
}

export function validateModelsSearch(raw: Record<string, unknown>): ModelsSearch {
  const search: ModelsSearch = {};
  if (raw.tab === "installed" || raw.tab === "routes" || raw.tab === "gallery") search.tab = raw.tab;
  if (typeof raw.q === "string" && raw.q !== "") search.q = raw.q;
  if (typeof raw.open === "string" && raw.open !== "") search.open = raw.open;
  return search;
}
