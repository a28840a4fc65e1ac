import { useState, type SubmitEvent } from "react";
import { api } from "@/api/client";
import type { CreatedKey, KeyScope } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Choice } from "@/components/Choice";
import { CopyBox } from "@/components/CopyBox";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import { LimitFieldset } from "./LimitFieldset";
import { fieldsOf, limitsOf } from "./limits";
import { expiryOf, ExpiryField } from "./LimitsOfKeyDialog";
import { ModelPicker } from "./ModelPicker";
import styles from "./NewKeyDialog.module.css";
import { useAccessChange } from "./queries";

export function NewKeyDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const [created, setCreated] = useState<CreatedKey | null>(null);
  function close() {
    setCreated(null);
    onClose();
  }
  return (
    <Dialog
      open={open}
      onClose={close}
      holds={created !== null}
      title={created === null ? "New key" : `API key ${created.name}`}
      description={
        <p>
          {created === null
            ? "For one person or one program."
            : "Copy it now. Corral stores only a hash and cannot show the key again."}
        </p>
      }
    >
      {!open ? null : created === null ? (
        <Form onCreated={setCreated} onClose={close} />
      ) : (
        <>
          <CopyBox label="New API key" text={created.key} />
          <DialogActions>
            <Button onClick={close}>I have copied it</Button>
          </DialogActions>
        </>
      )}
    </Dialog>
  );
}

function Form({ onCreated, onClose }: { onCreated: (key: CreatedKey) => void; onClose: () => void }) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<KeyScope>("user");
  const [models, setModels] = useState<string[] | null>(null);
  const [limits, setLimits] = useState(fieldsOf({}));
  const [expires, setExpires] = useState("");
  const create = useAccessChange(async () =>
    api.createKey({ name: name.trim(), scope, models, limits: limitsOf(limits), expires_at: expiryOf(expires) }),
  );
  function submit(event: SubmitEvent) {
    event.preventDefault();
    create.mutate(undefined, { onSuccess: onCreated });
  }
  return (
    <form className={styles.form} onSubmit={submit}>
      <TextField
        label="Name"
        required
        maxLength={100}
        placeholder="editor-plugin"
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <Choice<KeyScope>
        label="Scope"
        value={scope}
        onChange={setScope}
        options={[
          { value: "user", word: "User", hint: "Can use models through /v1 only." },
          { value: "admin", word: "Admin", hint: "Full access, including this UI." },
        ]}
      />
      <ModelPicker models={models} onChange={setModels} />
      <LimitFieldset fields={limits} onChange={setLimits} empty="default" />
      <ExpiryField value={expires} onChange={setExpires} />
      {create.isError ? <InlineError error={create.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={create.isPending}>
          Create key
        </Button>
      </DialogActions>
    </form>
  );
}
