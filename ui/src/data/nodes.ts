import { queryOptions, useQuery, type QueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "@/api/client";
import type { Node, NodesEvent } from "@/api/types";
import { formatDateTime } from "@/format/time";
import { createBatchListener } from "./lists";

/** A node as last reported by the server, with the time by this browser's clock. The two clocks may disagree, so an age
 * counts on from the server's figure and is never computed across them. */
export interface SeenNode extends Node {
  received_at_ms: number;
}

export function received(nodes: readonly Node[], atMs: number): SeenNode[] {
  return nodes.map((node) => ({ ...node, received_at_ms: atMs }));
}

/** The nodes after some events, in one pass: a burst costs no more than a single event. */
export function applyEvents(nodes: readonly SeenNode[], events: readonly NodesEvent[], atMs: number): SeenNode[] {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  for (const event of events) {
    for (const node of event.changed) {
      const known = byId.get(node.id);
      // A list read after this change was sent already shows it, or something newer.
      if (known !== undefined && Date.parse(node.updated_at) < Date.parse(known.updated_at)) continue;
      byId.set(node.id, { ...node, received_at_ms: atMs });
    }
    for (const id of event.removed) byId.delete(id);
  }
  return [...byId.values()];
}

export const nodeQueries = {
  list: () =>
    queryOptions({
      queryKey: ["nodes"],
      queryFn: async ({ signal }) => received(await api.listNodes(signal), Date.now()),
      // Events carry every change; this only bounds how long a lost one could go unnoticed.
      refetchInterval: 60_000,
    }),
};

export function createNodesListener(client: QueryClient): (data: string) => void {
  return createBatchListener<NodesEvent, SeenNode[]>(client, nodeQueries.list().queryKey, (nodes, events) =>
    applyEvents(nodes, events, Date.now()),
  );
}

type NodeHealth = Pick<Node, "approved" | "state" | "reachable">;

/** Reachable, but gets no new work because of a problem with the machine. */
export const isUnhealthy = ({ state, reachable }: NodeHealth) => state === "unhealthy" && reachable;

export const isOffline = (node: NodeHealth) =>
  node.approved && (node.state === "offline" || (node.state === "unhealthy" && !isUnhealthy(node)));

/** When the figures of an offline node were measured; empty while the node is online. */
export const figuresAsOf = ({ state, last_heartbeat }: Pick<Node, "state" | "last_heartbeat">) =>
  state === "offline" ? formatDateTime(last_heartbeat) : "";

/** Why a node gets no commands now. */
export type Held = "offline" | "drained";

export function howHeld(node: NodeHealth & Pick<Node, "drain_requested">): Held | null {
  if (isOffline(node) || node.state === "joining") return "offline";
  return node.state === "draining" && node.drain_requested ? "drained" : null;
}

/** By node ID; nodes that get commands are not in it. */
export function useHeldNodes(): ReadonlyMap<string, Held> {
  const nodes = useQuery(nodeQueries.list()).data;
  return useMemo(
    () =>
      new Map(
        nodes?.flatMap((node) => {
          const held = howHeld(node);
          return held === null ? [] : [[node.id, held] as const];
        }),
      ),
    [nodes],
  );
}

/** A node's name, or its ID when the name is unknown. */
export function useNodeNames(): (id: string) => string {
  const nodes = useQuery(nodeQueries.list()).data;
  const names = useMemo(() => new Map(nodes?.map((node) => [node.id, node.name])), [nodes]);
  return (id) => names.get(id) ?? id;
}
