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
import { useOrder } from "./queries";
import { EVERYWHERE, readTarget, TargetPicker } from "./TargetPicker";

/** For what no gallery offers. */
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
            For a backend that no gallery offers. Every node fetches it from there itself, so each must be able to reach
            it and to run it.
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
  const [wanted, setWanted] = useState(EMPTY);
  const [target, setTarget] = useState(EVERYWHERE);
  const [problem, setProblem] = useState<string | null>(null);
  const install = useOrder((where: Target) => api.installFromUri({ ...wanted, ...where }));
  const field = (key: keyof typeof EMPTY) => ({
    value: wanted[key],
    onChange: (event: { target: { value: string } }) => setWanted({ ...wanted, [key]: event.target.value.trim() }),
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
        announce.done(`The installation of ${wanted.name} has begun.`);
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
        hint="An OCI image, the address of an archive, or pypi://…"
        {...field("uri")}
      />
      <TextField label="Name" required hint="What it is called from then on." {...field("name")} />
      <TextField label="Alias" hint="A short name that models may use for it; may be left empty." {...field("alias")} />
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
