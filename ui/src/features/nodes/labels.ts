import type { Node } from "@/api/types";

/** Detected labels: they follow from the node's name, hardware and capacity. */
export function machineLabels(node: Node): Record<string, string> {
  const isSet = (key: string) => key in node.operator_labels || key in node.worker_labels;
  return Object.fromEntries(Object.entries(node.labels).filter(([key]) => !isSet(key)));
}
