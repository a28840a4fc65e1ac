import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Node } from "@/api/types";
import { nodeQueries } from "@/data/nodes";

export const joinQueries = {
  command: () =>
    queryOptions({
      queryKey: ["join-command"],
      queryFn: ({ signal }) => api.readJoinCommand(signal),
    }),
};

/** A change is done when the server confirmed it and the nodes were loaded again. Nothing is shown before that. */
function useNodeChange<T>(mutationFn: (change: T) => Promise<void>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    // Also after a failure: the outcome may be unknown, and the list shows it.
    onSettled: () => client.invalidateQueries({ queryKey: nodeQueries.list().queryKey }),
  });
}

export const useApproveNode = () => useNodeChange((node: Node) => api.approveNode(node.id));
export const useReplaceNode = () =>
  useNodeChange(({ node, claim }: { node: Node; claim: string }) => api.replaceNode(node.id, claim));
export const useRejectClaim = () =>
  useNodeChange(({ node, claim }: { node: Node; claim: string }) => api.rejectClaim(node.id, claim));
export const useDrainNode = () => useNodeChange((node: Node) => api.drainNode(node.id));
export const useResumeNode = () => useNodeChange((node: Node) => api.resumeNode(node.id));
export const useRemoveNode = () => useNodeChange((node: Node) => api.removeNode(node.id));

export const useSetLabel = () =>
  useNodeChange(({ node, key, value }: { node: Node; key: string; value: string }) =>
    api.mergeLabels(node.id, { [key]: value }),
  );
export const useRemoveLabel = () =>
  useNodeChange(({ node, key }: { node: Node; key: string }) => api.removeLabel(node.id, key));
export const useSetBudget = () =>
  useNodeChange(({ node, budget }: { node: Node; budget: string }) =>
    budget === "" ? api.clearBudget(node.id) : api.setBudget(node.id, budget),
  );
