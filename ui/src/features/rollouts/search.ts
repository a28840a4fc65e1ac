export type RolloutsTab = "backends" | "models";

export interface RolloutsSearch {
  tab?: RolloutsTab;
  q?: string;
  /** States to show, with commas; absent means all. */
  state?: string;
}

export const SHOWN_STATES = ["open", "completed", "failed", "aborted"] as const;
export type ShownState = (typeof SHOWN_STATES)[number];

export function validateRolloutsSearch(raw: Record<string, unknown>): RolloutsSearch {
  const search: RolloutsSearch = {};
  if (raw.tab === "backends" || raw.tab === "models") search.tab = raw.tab;
  if (typeof raw.q === "string" && raw.q !== "") search.q = raw.q;
  if (typeof raw.state === "string" && readStates(raw.state).length > 0) search.state = raw.state;
  return search;
}

export function readStates(text: string | undefined): ShownState[] {
  const named = (text ?? "").split(",");
  return SHOWN_STATES.filter((state) => named.includes(state));
}

export function withStateToggled(search: RolloutsSearch, state: ShownState): RolloutsSearch {
  const states = readStates(search.state);
  return {
    ...search,
    state: (states.includes(state) ? states.filter((each) => each !== state) : [...states, state]).join(","),
  };
}
