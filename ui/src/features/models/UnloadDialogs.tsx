import { api } from "@/api/client";
import type { Replica, Scheduling } from "@/api/types";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { useNodeNames } from "@/data/nodes";
import { useModelChange } from "./queries";
import { isKeptRunning, schedulingWords, unloadWords, unloadWordsOnNode } from "./states";

interface UnloadDialogProps {
  open: boolean;
  model: string;
  scheduling: Scheduling | undefined;
  replicas: readonly Replica[];
  loadCount: number;
  onClose: () => void;
  onScale: () => void;
}

/** Unloads the whole model. Corral would reload a model with desired replicas, so the dialog offers scaling instead. */
export function UnloadDialog({ open, model, scheduling, replicas, loadCount, onClose, onScale }: UnloadDialogProps) {
  const unload = useModelChange(() => api.unloadModel(model));
  const isKept = isKeptRunning(scheduling);
  return (
    <ConfirmDialog
      open={open}
      onClose={onClose}
      title={`Unload ${model}?`}
      action={isKept ? "Scale…" : "Unload"}
      busy={unload.isPending}
      error={unload.error}
      onConfirm={() => (isKept ? onScale() : unload.mutate(undefined, { onSuccess: onClose }))}
    >
      <p>
        {isKept
          ? `Its scaling is “${schedulingWords(scheduling)}”, so Corral would load it again immediately. Change the scaling first.`
          : unloadWords(replicas.length, loadCount)}
      </p>
    </ConfirmDialog>
  );
}

interface UnloadOnNodeDialogProps {
  model: string;
  scheduling: Scheduling | undefined;
  replicas: readonly Replica[];
  /** The node to unload from; null while the dialog is closed. */
  nodeId: string | null;
  onClose: () => void;
}

export function UnloadOnNodeDialog({ model, scheduling, replicas, nodeId, onClose }: UnloadOnNodeDialogProps) {
  const nameOf = useNodeNames();
  const unload = useModelChange((id: string) => api.unloadOnNode(id, model));
  const here = replicas.filter(({ node_id }) => node_id === nodeId).length;
  return (
    <ConfirmDialog
      open={nodeId !== null}
      onClose={onClose}
      title={`Unload ${model} from ${nameOf(nodeId ?? "")}?`}
      action="Unload"
      busy={unload.isPending}
      error={unload.error}
      onConfirm={() => nodeId !== null && unload.mutate(nodeId, { onSuccess: onClose })}
    >
      <p>{unloadWordsOnNode(here, replicas.length - here, scheduling)}</p>
    </ConfirmDialog>
  );
}
