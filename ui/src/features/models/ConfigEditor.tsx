import { useQuery } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api } from "@/api/client";
import { ApiError } from "@/api/errors";
import type { ModelDetail, Revision } from "@/api/types";
import { InlineError, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import { useAnnounce } from "@/components/Toasts";
import { plural } from "@/format/text";
import { formatDateTime } from "@/format/time";
import styles from "./ConfigEditor.module.css";
import { PendingNotice } from "./PendingNotice";
import { modelDetailQueries, useModelChange } from "./queries";

const START = `name: my-model
backend: llama-cpp
parameters:
  model: huggingface://owner/repository/weights.gguf
context_size: 4096
`;

export function AddModelDialog({
  open,
  onClose,
  onAdded,
}: {
  open: boolean;
  onClose: () => void;
  onAdded: (name: string) => void;
}) {
  const [text, setText] = useState(START);
  function close() {
    setText(START);
    onClose();
  }
  return (
    <Dialog
      open={open}
      onClose={close}
      holds={text !== START}
      wide
      title="Add a model"
      description={<p>A model configuration in YAML, in LocalAI's format. Corral validates it before saving.</p>}
    >
      {open ? <AddForm text={text} onText={setText} onClose={close} onAdded={onAdded} /> : null}
    </Dialog>
  );
}

interface AddFormProps {
  text: string;
  onText: (text: string) => void;
  onClose: () => void;
  onAdded: (name: string) => void;
}

function AddForm({ text, onText, onClose, onAdded }: AddFormProps) {
  const [force, setForce] = useState(false);
  const add = useModelChange((config: string) => api.addModel(config, force));
  function submit(event: SubmitEvent) {
    event.preventDefault();
    add.mutate(text, {
      onSuccess: (model) => {
        onAdded(model.name);
        onClose();
      },
    });
  }
  return (
    <form className={styles.form} onSubmit={submit}>
      <YamlField text={text} onText={onText} />
      {add.isError ? <InlineError error={add.error} /> : null}
      {isRejected(add.error) || force ? <ForceBox checked={force} onChange={setForce} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={add.isPending}>
          Add
        </Button>
      </DialogActions>
    </form>
  );
}

export function ConfigDialog({ open, name, onClose }: { open: boolean; name: string; onClose: () => void }) {
  const [isChanged, setChanged] = useState(false);
  function close() {
    setChanged(false);
    onClose();
  }
  return (
    <Dialog
      open={open}
      onClose={close}
      holds={isChanged}
      wide
      title={`Configuration of ${name}`}
      description={
        <p>
          Corral validates it before saving. Existing replicas keep serving until one with the new configuration is
          ready.
        </p>
      }
    >
      {open ? <LoadedConfig name={name} onClose={close} onChanged={setChanged} /> : null}
    </Dialog>
  );
}

interface EditProps {
  onClose: () => void;
  /** Whether there is text that is not saved. */
  onChanged: (isChanged: boolean) => void;
}

function LoadedConfig({ name, ...rest }: EditProps & { name: string }) {
  const detail = useQuery({ ...modelDetailQueries.one(name), staleTime: 0 });
  const revisions = useQuery(modelDetailQueries.revisions(name));
  if (detail.isPending) return <Loading what="the configuration" />;
  if (detail.isError)
    return (
      <Problem
        title="Could not load the configuration"
        error={detail.error}
        retrying={detail.isFetching}
        onRetry={() => void detail.refetch()}
      />
    );
  return <EditForm current={detail.data} revisions={revisions.data ?? []} {...rest} />;
}

function EditForm({
  current,
  revisions,
  onClose,
  onChanged,
}: EditProps & { current: ModelDetail; revisions: readonly Revision[] }) {
  const announce = useAnnounce();
  // The revision read when editing began, not a later one: that would silently overwrite changes of others.
  const [base, setBase] = useState(current);
  const [text, setText] = useState(current.config);
  function write(next: string) {
    setText(next);
    onChanged(next !== base.config);
  }
  const [force, setForce] = useState(false);
  const [comment, setComment] = useState("");
  const save = useModelChange((config: string) => api.editModel(base.name, { config, force, comment }, base.revision));
  const isConflict =
    base.revision !== current.revision ||
    (save.error instanceof ApiError && save.error.status === 409) ||
    (save.error instanceof ApiError && save.error.status === 412);

  function submit(event: SubmitEvent) {
    event.preventDefault();
    save.mutate(text, {
      onSuccess: (saved) => {
        announce.done(
          `Saved the configuration of ${base.name}.${saved.pending === null ? "" : " The previous revision serves until a replica with the new one is ready."}`,
        );
        onClose();
      },
    });
  }

  return (
    <form className={styles.form} onSubmit={submit}>
      <p className={styles.soft}>
        Revision {base.number} (<code>{base.revision.slice(0, 12)}</code>), {formatDateTime(base.changed_at)}, by{" "}
        {base.changed_by}
        {revisions.length > 1 ? `; ${plural(revisions.length - 1, "older revision")}` : ""}
      </p>
      {current.pending === null ? null : <PendingNotice pending={current.pending} />}
      <YamlField text={text} onText={write} />
      {base.warnings.map((warning) => (
        <p key={warning} className={styles.soft}>
          {warning}
        </p>
      ))}
      {base.unknown_fields.length === 0 ? null : (
        <p className={styles.soft}>Saved, but ignored by Corral: {base.unknown_fields.join(", ")}</p>
      )}
      {isConflict ? (
        <div className={styles.conflict} role="alert">
          <p>
            <strong>Another user changed this configuration</strong> ({current.changed_by},{" "}
            {formatDateTime(current.changed_at)}). Your text is kept, but cannot be saved over their revision.
          </p>
          <details>
            <summary>Current configuration</summary>
            <pre tabIndex={0}>{current.config}</pre>
          </details>
          <span className={styles.conflictActions}>
            <Button
              size="small"
              onClick={() => {
                setBase(current);
                setText(current.config);
                onChanged(false);
                save.reset();
              }}
            >
              Use their version
            </Button>
            <Button
              size="small"
              onClick={() => {
                setBase(current);
                save.reset();
              }}
            >
              Keep my text and replace their version
            </Button>
          </span>
        </div>
      ) : save.isError ? (
        <InlineError error={save.error} />
      ) : null}
      {isRejected(save.error) || force ? <ForceBox checked={force} onChange={setForce} /> : null}
      <TextField
        label="Comment (optional)"
        value={comment}
        maxLength={500}
        onChange={(event) => setComment(event.target.value)}
      />
      <DialogActions>
        {revisions.length > 1 ? <RevisionPicker revisions={revisions} onPick={write} /> : null}
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={save.isPending} aria-disabled={isConflict}>
          Save
        </Button>
      </DialogActions>
    </form>
  );
}

function isRejected(error: unknown): boolean {
  return error instanceof ApiError && error.status === 400;
}

/** Shown only after a rejection: a newer LocalAI or a later backend may know fields that Corral does not. */
function ForceBox({ checked, onChange }: { checked: boolean; onChange: (checked: boolean) => void }) {
  return (
    <label className={styles.force}>
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.target.checked)} />
      Save despite unknown fields or an unknown backend
    </label>
  );
}

function RevisionPicker({ revisions, onPick }: { revisions: readonly Revision[]; onPick: (text: string) => void }) {
  return (
    <select
      className={styles.picker}
      aria-label="Start from an older revision"
      value=""
      onChange={(event) => {
        const picked = revisions[Number(event.target.value)];
        if (picked !== undefined) onPick(picked.config);
      }}
    >
      <option value="" disabled>
        Older revisions…
      </option>
      {revisions.map((revision, index) =>
        revision.config === "" ? null : (
          <option key={index} value={index}>
            {revision.number} · {formatDateTime(revision.at)} · {revision.actor}
          </option>
        ),
      )}
    </select>
  );
}

function YamlField({ text, onText }: { text: string; onText: (text: string) => void }) {
  return (
    <textarea
      className={styles.yaml}
      aria-label="Configuration (YAML)"
      rows={16}
      spellCheck={false}
      autoCapitalize="none"
      value={text}
      onChange={(event) => onText(event.target.value)}
    />
  );
}
