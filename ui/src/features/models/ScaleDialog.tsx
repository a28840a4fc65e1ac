import { useState, type SubmitEvent } from "react";
import { api } from "@/api/client";
import type { Scheduling, SchedulingRequest } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Choice } from "@/components/Choice";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import { useAnnounce } from "@/components/Toasts";
import { formatSelector, parseSelector } from "@/format/selector";
import { useModelChange } from "./queries";
import styles from "./ScaleDialog.module.css";
import { readSelector } from "./states";

type How = "demand" | "count" | "all";

interface ScaleDialogProps {
  open: boolean;
  model: string;
  scheduling: Scheduling | undefined;
  onClose: () => void;
}

export function ScaleDialog({ open, model, scheduling, onClose }: ScaleDialogProps) {
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title={`Scale ${model}`}
      description={
        <p>The desired number of replicas, and where they run. Corral maintains it as nodes join and leave.</p>
      }
    >
      {open ? <ScaleForm model={model} scheduling={scheduling} onClose={onClose} /> : null}
    </Dialog>
  );
}

function ScaleForm({ model, scheduling, onClose }: Omit<ScaleDialogProps, "open">) {
  const announce = useAnnounce();
  const [how, setHow] = useState<How>(
    scheduling === undefined ||
      (scheduling.min_replicas === 0 && scheduling.max_replicas === 0 && !scheduling.spread_all)
      ? "demand"
      : scheduling.spread_all
        ? "all"
        : "count",
  );
  const [least, setLeast] = useState(String(scheduling?.min_replicas ?? 1));
  const [most, setMost] = useState(String(scheduling?.max_replicas ?? 0));
  const [selector, setSelector] = useState(formatSelector(readSelector(scheduling)));
  const [problem, setProblem] = useState<string | null>(null);
  const save = useModelChange(async (request: SchedulingRequest | null) => {
    if (request !== null) await api.saveScheduling(request);
    else if (scheduling !== undefined) await api.deleteScheduling(model);
  });

  function submit(event: SubmitEvent) {
    event.preventDefault();
    const labels = selector.trim() === "" ? {} : parseSelector(selector);
    if (typeof labels === "string") {
      setProblem(labels);
      return;
    }
    setProblem(null);
    const nodeSelector = Object.keys(labels).length === 0 ? null : labels;
    const counted = how === "count";
    const request = {
      model_name: model,
      min_replicas: counted ? Number(least) : 0,
      max_replicas: counted ? Number(most) : 0,
      spread_all: how === "all",
      node_selector: nodeSelector,
    };
    save.mutate(how === "demand" && nodeSelector === null ? null : request, {
      onSuccess: () => {
        announce.done(`Saved the scaling of ${model}.`);
        onClose();
      },
    });
  }

  return (
    <form className={styles.form} onSubmit={submit}>
      <Choice<How>
        label="Replicas"
        value={how}
        onChange={setHow}
        options={[
          {
            value: "demand",
            word: "On demand",
            hint: "Loaded by the first request, unloaded after a long idle time (scales to zero).",
          },
          { value: "count", word: "Number of replicas" },
          { value: "all", word: "One on every node", hint: "Includes nodes that join later." },
        ]}
      />
      {how === "count" ? (
        <div className={styles.counts}>
          <TextField
            label="Minimum"
            type="number"
            min={0}
            max={1000}
            required
            value={least}
            onChange={(event) => setLeast(event.target.value)}
          />
          <TextField
            label="Maximum"
            type="number"
            min={0}
            max={1000}
            required
            value={most}
            onChange={(event) => setMost(event.target.value)}
            hint="0 means no limit"
          />
        </div>
      ) : null}
      <TextField
        label="Only on nodes with these labels"
        placeholder="tier=fast"
        autoCapitalize="none"
        spellCheck={false}
        value={selector}
        onChange={(event) => setSelector(event.target.value)}
        hint="Leave empty for any node."
      />
      {problem !== null ? <InlineError error={problem} /> : save.isError ? <InlineError error={save.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={save.isPending}>
          Save
        </Button>
      </DialogActions>
    </form>
  );
}
