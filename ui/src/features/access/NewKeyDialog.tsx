import { useState, type SubmitEvent } from "react";
import { api } from "@/api/client";
import type { CreatedKey, KeyScope } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Choice } from "@/components/Choice";
import { CopyBox } from "@/components/CopyBox";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import { ModelPicker } from "./ModelPicker";
import styles from "./NewKeyDialog.module.css";
import { useAccessChange } from "./queries";

export function NewKeyDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const [made, setMade] = useState<CreatedKey | null>(null);
  function close() {
    setMade(null);
    onClose();
  }
  return (
    <Dialog
      open={open}
      onClose={close}
      holds={made !== null}
      title={made === null ? "New key" : `The key ${made.name}`}
      description={
        <p>
          {made === null
            ? "For one person or one program."
            : "It is shown this once: only its hash is kept. Copy it now."}
        </p>
      }
    >
      {!open ? null : made === null ? (
        <Form onMade={setMade} onClose={close} />
      ) : (
        <>
          <CopyBox label="The new key" text={made.key} />
          <DialogActions>
            <Button onClick={close}>I have copied it</Button>
          </DialogActions>
        </>
      )}
    </Dialog>
  );
}

function Form({ onMade, onClose }: { onMade: (key: CreatedKey) => void; onClose: () => void }) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<KeyScope>("user");
  const [models, setModels] = useState<string[] | null>(null);
  const create = useAccessChange(() => api.createKey({ name: name.trim(), scope, models }));
  function submit(event: SubmitEvent) {
    event.preventDefault();
    create.mutate(undefined, { onSuccess: onMade });
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
          { value: "user", word: "User", hint: "May use models through /v1, and nothing else." },
          { value: "admin", word: "Admin", hint: "May do everything, also here." },
        ]}
      />
      <ModelPicker models={models} onChange={setModels} />
      {create.isError ? <InlineError error={create.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={create.isPending}>
          Make the key
        </Button>
      </DialogActions>
    </form>
  );
}
