import { useState, type SubmitEvent } from "react";
import { api } from "@/api/client";
import type { Target } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import { useAnnounce } from "@/components/Toasts";
import type { SeenNode } from "@/data/nodes";
import styles from "./InstallFromUri.module.css";
import { useBackendMutation } from "./queries";
import { EVERYWHERE, readTarget, TargetPicker } from "./TargetPicker";

/** For a backend that is not in a gallery. */
export function InstallFromUri({ nodes }: { nodes: readonly SeenNode[] }) {
  const [isOpen, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      <Button icon="add" onClick={() => setOpen(true)}>
        Install from a URI
      </Button>
      <Dialog
        open={isOpen}
        onClose={close}
        title="Install from a URI"
        description={
          <p>
            For a backend that is not in a gallery. Each node downloads it from this URI, so each node must be able to
            reach the URI and to run the backend.
          </p>
        }
      >
        <UriForm nodes={nodes} onClose={close} />
      </Dialog>
    </>
  );
}

const EMPTY = { uri: "", name: "", alias: "" };

function UriForm({ nodes, onClose }: { nodes: readonly SeenNode[]; onClose: () => void }) {
  const announce = useAnnounce();
  const [draft, setDraft] = useState(EMPTY);
  const [target, setTarget] = useState(EVERYWHERE);
  const [problem, setProblem] = useState<string | null>(null);
  const install = useBackendMutation((where: Target) => api.installFromUri({ ...draft, ...where }));
  const field = (key: keyof typeof EMPTY) => ({
    value: draft[key],
    onChange: (event: { target: { value: string } }) => setDraft({ ...draft, [key]: event.target.value.trim() }),
    autoCapitalize: "none",
    autoComplete: "off",
    spellCheck: false,
  });

  function submit(event: SubmitEvent) {
    event.preventDefault();
    const where = readTarget(target);
    if (typeof where === "string") {
      setProblem(where);
      return;
    }
    setProblem(null);
    install.mutate(where, {
      onSuccess: () => {
        announce.done(`Started install of ${draft.name}.`);
        onClose();
      },
    });
  }

  return (
    <form className={styles.form} onSubmit={submit}>
      <TextField
        label="URI"
        required
        placeholder="oci://registry.example/backend:1"
        hint="An OCI image, an archive URL, or pypi://…"
        {...field("uri")}
      />
      <TextField label="Name" required hint="The name of the installed backend." {...field("name")} />
      <TextField label="Alias" hint="Optional. A short name that models can use for it." {...field("alias")} />
      <TargetPicker nodes={nodes} draft={target} onChange={setTarget} all="All nodes" later />
      {problem !== null ? (
        <InlineError error={problem} />
      ) : install.isError ? (
        <InlineError error={install.error} />
      ) : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={install.isPending}>
          Install
        </Button>
      </DialogActions>
    </form>
  );
}
