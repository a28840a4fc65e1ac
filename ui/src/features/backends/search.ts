export type BackendsTab = "installed" | "gallery" | "policies";

export interface BackendsSearch {
  tab?: BackendsTab;
  q?: string;
  tag?: string;
  /** Also individual builds and development builds. */
  all?: "yes" | "";
}

export function validateBackendsSearch(raw: Record<string, unknown>): BackendsSearch {
  const search: BackendsSearch = {};
  if (raw.tab === "installed" || raw.tab === "gallery" || raw.tab === "policies") search.tab = raw.tab;
  if (typeof raw.q === "string" && raw.q !== "") search.q = raw.q;
  if (typeof raw.tag === "string" && raw.tag !== "") search.tag = raw.tag;
  if (raw.all === "yes") search.all = "yes";
  return search;
}
