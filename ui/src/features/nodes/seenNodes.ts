import type { Node, NodeStatus } from "@/api/types";
import type { SeenNode } from "@/data/nodes";
import { capabilityLine, cpuLine, gpuLines } from "./hardware";
import { STATUSES } from "@/format/status";

export function lastSeenAgeS(node: SeenNode, nowMs: number): number | null {
  if (node.last_seen_age_s === null) return null;
  return node.last_seen_age_s + Math.max(0, nowMs - node.received_at_ms) / 1000;
}

export const SORTS = ["name", "status", "memory", "disk", "seen"] as const;
export type Sort = (typeof SORTS)[number];

export interface RosterView {
  text: string;
  statuses: readonly NodeStatus[];
  sort: Sort;
  descending: boolean;
}

const searchTexts = new WeakMap<Node, string>();

function searchText(node: Node): string {
  let text = searchTexts.get(node);
  if (text === undefined) {
    const labels = Object.entries(node.labels).map(([key, value]) => `${key}=${value}`);
    text = [
      node.name,
      node.id,
      node.address,
      node.node_type,
      node.state,
      node.status_reason,
      node.platform ?? "",
      node.version ?? "",
      cpuLine(node),
      capabilityLine(node),
      ...gpuLines(node),
      ...labels,
    ]
      .join("\n")
      .toLowerCase();
    searchTexts.set(node, text);
  }
  return text;
}

/** Every word must be found somewhere, in any order: `nvidia tier=fast`. */
export function matchesText(node: Node, text: string): boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return words.every((word) => searchText(node).includes(word));
}

function freeShare(total: number | null, free: number | null): number | null {
  return total === null || free === null || total === 0 ? null : free / total;
}

function sortKey(node: SeenNode, sort: Sort): number | null {
  switch (sort) {
    case "name":
      return 0;
    case "status":
      return STATUSES.indexOf(node.state);
    case "memory":
      return node.total_vram
        ? freeShare(node.total_vram, node.available_vram)
        : freeShare(node.total_ram, node.available_ram);
    case "disk":
      return freeShare(node.total_disk, node.available_disk);
    case "seen":
      return node.last_seen_age_s === null ? null : node.last_seen_age_s - node.received_at_ms / 1000;
  }
}

const byName = new Intl.Collator(undefined, { numeric: true }).compare;

export function viewRoster(nodes: readonly SeenNode[], view: RosterView): SeenNode[] {
  const direction = view.descending ? -1 : 1;
  return nodes
    .filter(
      (node) => (view.statuses.length === 0 || view.statuses.includes(node.state)) && matchesText(node, view.text),
    )
    .map((node) => ({ node, key: sortKey(node, view.sort) }))
    .sort((a, b) => {
      const tie = byName(a.node.name, b.node.name) || (a.node.id < b.node.id ? -1 : 1);
      if (view.sort === "name") return direction * tie;
      // What is unknown is neither much nor little: it comes last either way.
      if (a.key === null || b.key === null) return a.key === b.key ? tie : a.key === null ? 1 : -1;
      return direction * (a.key - b.key) || tie;
    })
    .map(({ node }) => node);
}
