import { useState } from "react";
import { api } from "@/api/client";
import type { Key } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Dialog, DialogActions } from "@/components/Dialog";
import { ModelPicker } from "./ModelPicker";
import { useAccessChange } from "./queries";

export function ModelsOfKeyDialog({ apiKey, onClose }: { apiKey: Key | null; onClose: () => void }) {
  return (
    <Dialog
      open={apiKey !== null}
      onClose={onClose}
      title={`Models of ${apiKey?.name ?? ""}`}
      description={<p>Takes effect on every frontend within five seconds.</p>}
    >
      {apiKey === null ? null : <Form key={apiKey.id} apiKey={apiKey} onClose={onClose} />}
    </Dialog>
  );
}

function Form({ apiKey, onClose }: { apiKey: Key; onClose: () => void }) {
  const [models, setModels] = useState<string[] | null>(apiKey.models);
  const save = useAccessChange(() => api.setKeyModels(apiKey.id, models));
  return (
    <>
      <ModelPicker models={models} onChange={setModels} />
      {save.isError ? <InlineError error={save.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button look="primary" busy={save.isPending} onClick={() => save.mutate(undefined, { onSuccess: onClose })}>
          Save
        </Button>
      </DialogActions>
    </>
  );
}
