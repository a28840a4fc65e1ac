export type ActivityTab = "running" | "finished" | "exhausted";

export const STATES = ["running", "completed", "failed", "cancelled"] as const;
export type ActivityState = (typeof STATES)[number];

export interface ActivitySearch {
  tab?: ActivityTab;
  q?: string;
  /** States to show, with commas; absent means all. */
  state?: string;
  /** The finished operation whose details are shown. */
  open?: string | undefined;
}

export function validateActivitySearch(raw: Record<string, unknown>): ActivitySearch {
  const search: ActivitySearch = {};
  if (raw.tab === "running" || raw.tab === "finished" || raw.tab === "exhausted") search.tab = raw.tab;
  if (typeof raw.q === "string" && raw.q !== "") search.q = raw.q;
  if (typeof raw.state === "string" && parseStates(raw.state).length > 0) search.state = raw.state;
  if (typeof raw.open === "string") search.open = raw.open;
  return search;
}

function parseStates(text: string): ActivityState[] {
  const named = text.split(",");
  return STATES.filter((state) => named.includes(state));
}

export function readActivity(search: ActivitySearch): { tab: ActivityTab; text: string; states: ActivityState[] } {
  return { tab: search.tab ?? "running", text: search.q ?? "", states: parseStates(search.state ?? "") };
}

export function withStateToggled(search: ActivitySearch, state: ActivityState): ActivitySearch {
  const { states } = readActivity(search);
  return {
    ...search,
    state: (states.includes(state) ? states.filter((each) => each !== state) : [...states, state]).join(","),
  };
}
