/** The view state of the Nodes page, stored in the address. */
import type { NodeStatus } from "@/api/types";
import { SORTS, type RosterView, type Sort } from "./seenNodes";
import { isStatus } from "./status";

export interface NodesSearch {
  /** Search words. */
  q?: string;
  /** Statuses to show, with commas; absent means all. */
  status?: string;
  /** A column, with `-` before it for descending; absent means by name. */
  sort?: string;
  /** The "Add a node" dialog is open. */
  add?: "open";
}

const DEFAULT_SORT = "name";

/** Ignores unknown values: an address may be typed by hand or come from another version. */
export function validateNodesSearch(raw: Record<string, unknown>): NodesSearch {
  const search: NodesSearch = {};
  if (typeof raw.q === "string" && raw.q !== "") search.q = raw.q;
  if (typeof raw.status === "string" && parseStatuses(raw.status).length > 0) search.status = raw.status;
  if (typeof raw.sort === "string" && isSort(raw.sort.replace(/^-/, ""))) search.sort = raw.sort;
  if (raw.add === "open") search.add = "open";
  return search;
}

function isSort(text: string): text is Sort {
  return (SORTS as readonly string[]).includes(text);
}

function parseStatuses(text: string): NodeStatus[] {
  return text.split(",").filter(isStatus);
}

export function readView(search: NodesSearch): RosterView {
  const sort = (search.sort ?? DEFAULT_SORT).replace(/^-/, "");
  return {
    text: search.q ?? "",
    statuses: parseStatuses(search.status ?? ""),
    sort: isSort(sort) ? sort : DEFAULT_SORT,
    descending: search.sort?.startsWith("-") ?? false,
  };
}

function without(search: NodesSearch, key: keyof NodesSearch): NodesSearch {
  return Object.fromEntries(Object.entries(search).filter(([each]) => each !== key));
}

export function withText(search: NodesSearch, text: string): NodesSearch {
  return text.trim() === "" ? without(search, "q") : { ...search, q: text };
}

export function withStatusToggled(search: NodesSearch, status: NodeStatus): NodesSearch {
  const shown = readView(search).statuses;
  const next = shown.includes(status) ? shown.filter((each) => each !== status) : [...shown, status];
  return next.length === 0 ? without(search, "status") : { ...search, status: next.join(",") };
}

export function withAllStatuses(search: NodesSearch): NodesSearch {
  return without(search, "status");
}

/** A second click on the same column reverses the sort order. */
export function withSort(search: NodesSearch, sort: Sort): NodesSearch {
  const view = readView(search);
  const descending = view.sort === sort && !view.descending;
  if (sort === DEFAULT_SORT && !descending) return without(search, "sort");
  return { ...search, sort: descending ? `-${sort}` : sort };
}

export function withDialog(search: NodesSearch, open: boolean): NodesSearch {
  return open ? { ...search, add: "open" } : without(search, "add");
}
