/** The actions on a node. One set of dialogs serves the whole page; rows and the panel open them. */
import { createContext, use, useState, type ReactNode } from "react";
import type { Node } from "@/api/types";
import { messageOf } from "@/components/Answers";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import type { IconName } from "@/components/Icon";
import { useAnnounce } from "@/components/Toasts";
import { BudgetDialog } from "./BudgetDialog";
import { LabelsDialog } from "./LabelsDialog";
import { useDrainNode, useRemoveNode, useResumeNode } from "./queries";
import { plural } from "@/format/text";
import type { SeenNode } from "@/data/nodes";
import type { NodeAction } from "./status";

export const ACTION_LOOKS: Record<NodeAction, { word: string; icon: IconName }> = {
  approve: { word: "Approve", icon: "approve" },
  drain: { word: "Drain…", icon: "drain" },
  resume: { word: "Resume", icon: "resume" },
  labels: { word: "Edit labels…", icon: "label" },
  budget: { word: "GPU memory budget…", icon: "settings" },
  remove: { word: "Remove…", icon: "remove" },
};

type StartAction = (action: Exclude<NodeAction, "approve">, node: Node) => void;

const ActionContext = createContext<StartAction>(() => {
  throw new Error("useNodeAction must be used inside NodeActions");
});

export const useNodeAction = () => use(ActionContext);

export function NodeActions({ nodes, children }: { nodes: readonly SeenNode[]; children: ReactNode }) {
  const [chosen, setChosen] = useState<{ action: "drain" | "remove" | "labels" | "budget"; node: Node } | null>(null);
  const announce = useAnnounce();
  const drain = useDrainNode();
  const resume = useResumeNode();
  const remove = useRemoveNode();

  const startAction: StartAction = (action, node) => {
    if (action === "resume") {
      resume.mutate(node, {
        onSuccess: () => announce.done(`Resumed ${node.name}.`),
        onError: (error) => announce.failed(`Could not resume ${node.name}.`, messageOf(error)),
      });
      return;
    }
    drain.reset();
    remove.reset();
    setChosen({ action, node });
  };
  const close = () => setChosen(null);
  // A dialog follows the current state of its node; a removed node is shown as it last was.
  const node = chosen === null ? null : (nodes.find(({ id }) => id === chosen.node.id) ?? chosen.node);

  return (
    <ActionContext value={startAction}>
      {children}
      <ConfirmDialog
        open={chosen?.action === "drain"}
        onClose={close}
        title={`Drain ${node?.name ?? ""}?`}
        action="Drain"
        busy={drain.isPending}
        error={drain.error}
        onConfirm={() => {
          if (node === null) return;
          drain.mutate(node, {
            onSuccess: () => {
              announce.done(`Draining ${node.name}.`);
              close();
            },
          });
        }}
      >
        <p>The node gets no new work. Requests in flight finish first.</p>
        {node !== null && (node.model_count > 0 || node.in_flight_count > 0) ? (
          <p>
            Now: {plural(node.model_count, "model", "models")} loaded,{" "}
            {plural(node.in_flight_count, "request", "requests")} in flight.
          </p>
        ) : null}
        <p>It stays in the cluster and stays drained across restarts. Choose “Resume” to give it work again.</p>
      </ConfirmDialog>
      <ConfirmDialog
        open={chosen?.action === "remove"}
        onClose={close}
        title={`Remove ${node?.name ?? ""}?`}
        action="Remove"
        danger
        busy={remove.isPending}
        error={remove.error}
        onConfirm={() => {
          if (node === null) return;
          remove.mutate(node, {
            onSuccess: () => {
              announce.done(`Removed ${node.name}.`);
              close();
            },
          });
        }}
      >
        <p>
          Corral removes this node with its labels and settings, and revokes its credentials. Its replicas become
          unavailable
          {node !== null && node.in_flight_count > 0
            ? `; ${plural(node.in_flight_count, "request", "requests")} in flight may fail`
            : ""}
          .
        </p>
        <p>
          Nothing is deleted on the machine itself. If its worker is still running, it requests to join again as a new
          node.
        </p>
      </ConfirmDialog>
      <BudgetDialog open={chosen?.action === "budget"} node={node} onClose={close} />
      <LabelsDialog open={chosen?.action === "labels"} node={node} onClose={close} />
    </ActionContext>
  );
}
