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
        <p>How much of its GPU memory models may use. What runs already stays; new models are placed within it.</p>
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
              ? `${node.name} has no budget of its own any more.`
              : `The budget of ${node.name} is ${budget.trim()}.`,
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
        placeholder="80% or 12GB"
        autoCapitalize="none"
        spellCheck={false}
        value={budget}
        onChange={(event) => setBudget(event.target.value)}
        hint="A share or an amount. Empty: what the worker was started with, or all of it."
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
