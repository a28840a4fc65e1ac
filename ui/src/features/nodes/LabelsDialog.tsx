import { useState, type SubmitEvent } from "react";
import type { Node } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button, IconButton } from "@/components/Button";
import { Chip } from "@/components/Chip";
import { Dialog } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import styles from "./LabelsDialog.module.css";
import { useRemoveLabel, useSetLabel } from "./queries";

const sorted = (labels: Record<string, string>) => Object.entries(labels).sort(([a], [b]) => a.localeCompare(b));

export function LabelsDialog({ open, node, onClose }: { open: boolean; node: Node | null; onClose: () => void }) {
  return (
    <Dialog
      open={open && node !== null}
      onClose={onClose}
      title={`Labels of ${node?.name ?? ""}`}
      description={
        <p>Labels select nodes: models and backends can be limited to nodes with a label. Changes apply immediately.</p>
      }
    >
      {node === null ? null : <LabelsEditor key={node.id} node={node} />}
    </Dialog>
  );
}

function LabelsEditor({ node }: { node: Node }) {
  const operators = sorted(node.operator_labels);
  const workers = sorted(node.worker_labels);
  const remove = useRemoveLabel();
  return (
    <>
      <section>
        <h3 className={styles.heading}>Set by administrators</h3>
        {operators.length === 0 ? <p className={styles.soft}>None yet. Add the first one below.</p> : null}
        <ul>
          {operators.map(([key, value]) => (
            <li key={key} className={styles.row}>
              <Chip strong>
                {key}={value}
              </Chip>
              {key in node.worker_labels ? (
                <span className={styles.soft}>overrides the worker's “{node.worker_labels[key]}”</span>
              ) : null}
              <IconButton
                icon="close"
                label={`Remove label ${key}`}
                aria-disabled={remove.isPending}
                onClick={() => {
                  if (!remove.isPending) remove.mutate({ node, key });
                }}
              />
            </li>
          ))}
        </ul>
        {remove.isError ? <InlineError error={remove.error} /> : null}
      </section>
      <AddLabel node={node} />
      {workers.length === 0 ? null : (
        <section>
          <h3 className={styles.heading}>Reported by the worker</h3>
          <p className={styles.chips}>
            {workers.map(([key, value]) => (
              <Chip key={key}>
                {key}={value}
              </Chip>
            ))}
          </p>
        </section>
      )}
    </>
  );
}

function AddLabel({ node }: { node: Node }) {
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  const set = useSetLabel();

  function submit(event: SubmitEvent) {
    event.preventDefault();
    if (set.isPending) return;
    set.mutate(
      { node, key: key.trim(), value: value.trim() },
      {
        onSuccess: () => {
          setKey("");
          setValue("");
        },
      },
    );
  }

  return (
    <form className={styles.form} onSubmit={submit}>
      <TextField
        label="Key"
        required
        autoCapitalize="none"
        spellCheck={false}
        placeholder="tier"
        value={key}
        onChange={(event) => setKey(event.target.value)}
      />
      <TextField
        label="Value"
        autoCapitalize="none"
        spellCheck={false}
        placeholder="fast"
        value={value}
        onChange={(event) => setValue(event.target.value)}
      />
      <Button type="submit" look="primary" busy={set.isPending}>
        {key.trim() in node.operator_labels ? "Change" : "Add"}
      </Button>
      {set.isError ? (
        <div className={styles.error}>
          <InlineError error={set.error} />
        </div>
      ) : null}
    </form>
  );
}
