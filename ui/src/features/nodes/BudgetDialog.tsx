import { useState, type SubmitEvent } from "react";
import type { Node } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import { useAnnounce } from "@/components/Toasts";
import styles from "./BudgetDialog.module.css";
import { useSetBudget } from "./queries";

export function BudgetDialog({ open, node, onClose }: { open: boolean; node: Node | null; onClose: () => void }) {
  return (
    <Dialog
      open={open && node !== null}
      onClose={onClose}
      title={`GPU memory budget of ${node?.name ?? ""}`}
      description={
        <p>
          The GPU memory that models may use on this node. Running models are not stopped; new models are placed within
          the budget.
        </p>
      }
    >
      {node === null || !open ? null : <BudgetForm key={node.id} node={node} onClose={onClose} />}
    </Dialog>
  );
}

function BudgetForm({ node, onClose }: { node: Node; onClose: () => void }) {
  const [budget, setBudget] = useState(node.vram_budget ?? "");
  const announce = useAnnounce();
  const save = useSetBudget();
  function submit(event: SubmitEvent) {
    event.preventDefault();
    save.mutate(
      { node, budget: budget.trim() },
      {
        onSuccess: () => {
          announce.done(
            budget.trim() === ""
              ? `Removed the budget of ${node.name}.`
              : `Set the budget of ${node.name} to ${budget.trim()}.`,
          );
          onClose();
        },
      },
    );
  }
  return (
    <form className={styles.form} onSubmit={submit}>
      <TextField
        label="Budget"
        placeholder="80% or 12GiB"
        autoCapitalize="none"
        spellCheck={false}
        value={budget}
        onChange={(event) => setBudget(event.target.value)}
        hint="A percentage or an amount. Leave empty to use the worker's setting, or all GPU memory."
      />
      {save.isError ? <InlineError error={save.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={save.isPending}>
          Save
        </Button>
      </DialogActions>
    </form>
  );
}
