/** What can be asked of a node. One set of dialogs serves the whole page; rows and the panel only open them. */
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

type Ask = (action: Exclude<NodeAction, "approve">, node: Node) => void;

const AskContext = createContext<Ask>(() => {
  throw new Error("useAsk needs a NodeActions around it");
});

export const useAsk = () => use(AskContext);

export function NodeActions({ nodes, children }: { nodes: readonly SeenNode[]; children: ReactNode }) {
  const [asked, setAsked] = useState<{ action: "drain" | "remove" | "labels" | "budget"; node: Node } | null>(null);
  const announce = useAnnounce();
  const drain = useDrainNode();
  const resume = useResumeNode();
  const remove = useRemoveNode();

  const ask: Ask = (action, node) => {
    if (action === "resume") {
      resume.mutate(node, {
        onSuccess: () => announce.done(`${node.name} takes work again.`),
        onError: (error) => announce.failed(`${node.name} could not be resumed.`, messageOf(error)),
      });
      return;
    }
    drain.reset();
    remove.reset();
    setAsked({ action, node });
  };
  const close = () => setAsked(null);
  // What is shown while asking follows the roster; a node that has gone is shown as it last was.
  const node = asked === null ? null : (nodes.find(({ id }) => id === asked.node.id) ?? asked.node);

  return (
    <AskContext value={ask}>
      {children}
      <ConfirmDialog
        open={asked?.action === "drain"}
        onClose={close}
        title={`Drain ${node?.name ?? ""}?`}
        action="Drain"
        busy={drain.isPending}
        error={drain.error}
        onConfirm={() => {
          if (node === null) return;
          drain.mutate(node, {
            onSuccess: () => {
              announce.done(`${node.name} is draining.`);
              close();
            },
          });
        }}
      >
        <p>It gets no new work from now on. What it is working on is finished first.</p>
        {node !== null && (node.model_count > 0 || node.in_flight_count > 0) ? (
          <p>
            Now: {plural(node.model_count, "model", "models")} loaded,{" "}
            {plural(node.in_flight_count, "request", "requests")} in flight.
          </p>
        ) : null}
        <p>It stays in the herd, also across restarts; “Resume” gives it work again.</p>
      </ConfirmDialog>
      <ConfirmDialog
        open={asked?.action === "remove"}
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
              announce.done(`${node.name} is removed.`);
              close();
            },
          });
        }}
      >
        <p>
          Corral forgets this node with its labels and settings, and revokes its credentials. Models it serves become
          unavailable there
          {node !== null && node.in_flight_count > 0
            ? `; ${plural(node.in_flight_count, "request", "requests")} in flight may fail`
            : ""}
          .
        </p>
        <p>
          Nothing is deleted on the machine itself. If its worker is still running, it asks to join again as a new node.
        </p>
      </ConfirmDialog>
      <BudgetDialog open={asked?.action === "budget"} node={node} onClose={close} />
      <LabelsDialog open={asked?.action === "labels"} node={node} onClose={close} />
    </AskContext>
  );
}
