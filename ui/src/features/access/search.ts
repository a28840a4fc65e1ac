export type AccessTab = "keys" | "audit";

export interface AccessSearch {
  tab?: AccessTab;
  q?: string;
}

export function validateAccessSearch(raw: Record<string, unknown>): AccessSearch {
  const search: AccessSearch = {};
  if (raw.tab === "keys" || raw.tab === "audit") search.tab = raw.tab;
  if (typeof raw.q === "string" && raw.q !== "") search.q = raw.q;
  return search;
}
