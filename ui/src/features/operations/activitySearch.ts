export type ActivityTab = "running" | "finished" | "gave-up";

export interface ActivitySearch {
  tab?: ActivityTab;
  q?: string;
  /** The finished operation whose details are shown. */
  open?: string | undefined;
}

export function validateActivitySearch(raw: Record<string, unknown>): ActivitySearch {
  const search: ActivitySearch = {};
  if (raw["tab"] === "running" || raw["tab"] === "finished" || raw["tab"] === "gave-up") search.tab = raw["tab"];
  if (typeof raw["q"] === "string" && raw["q"] !== "") search.q = raw["q"];
  if (typeof raw["open"] === "string") search.open = raw["open"];
  return search;
}

export function readActivity(search: ActivitySearch): { tab: ActivityTab; text: string } {
  return { tab: search.tab ?? "running", text: search.q ?? "" };
}
