import { useQuery } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api } from "@/api/client";
import type { Key, KeyLimits } from "@/api/types";
import { InlineError, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import { KeyUsage } from "./KeyUsage";
import { LimitFieldset } from "./LimitFieldset";
import { fieldsOf, limitsOf } from "./limits";
import styles from "./Limits.module.css";
import { accessQueries, useAccessChange } from "./queries";

const HINT = "Numbers above 0. An empty field means the default, “none” means no limit.";

export function LimitsOfKeyDialog({ apiKey, onClose }: { apiKey: Key | null; onClose: () => void }) {
  return (
    <Dialog
      open={apiKey !== null}
      onClose={onClose}
      title={`Limits of ${apiKey?.name ?? ""}`}
      description={<p>Takes effect on every frontend within five seconds.</p>}
    >
      {apiKey === null ? null : <KeyForm key={apiKey.id} apiKey={apiKey} onClose={onClose} />}
    </Dialog>
  );
}

function KeyForm({ apiKey, onClose }: { apiKey: Key; onClose: () => void }) {
  const [fields, setFields] = useState(fieldsOf(apiKey.limits));
  const [expires, setExpires] = useState(apiKey.expires_at?.slice(0, 10) ?? "");
  const save = useAccessChange(async () => {
    const limits = limitsOf(fields);
    const isSame = expires === (apiKey.expires_at?.slice(0, 10) ?? "");
    await api.editKey(apiKey.id, { limits, ...(isSame ? {} : { expires_at: expiryOf(expires) }) });
  });
  function submit(event: SubmitEvent) {
    event.preventDefault();
    save.mutate(undefined, { onSuccess: onClose });
  }
  return (
    <form className={styles.form} onSubmit={submit}>
      <KeyUsage id={apiKey.id} />
      <LimitFieldset fields={fields} onChange={setFields} empty="default" />
      <p className={styles.hint}>{HINT}</p>
      <ExpiryField value={expires} onChange={setExpires} />
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

export function ExpiryField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <TextField
      label="Expires on"
      type="date"
      hint="At the end of this day (UTC). Empty: never."
      value={value}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

export const expiryOf = (day: string) => (day === "" ? null : `${day}T23:59:59Z`);

export function DefaultLimitsDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const defaults = useQuery({ ...accessQueries.defaults(), enabled: open });
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title="Default limits"
      description={<p>For all keys, as far as they have no limits of their own.</p>}
    >
      {!open ? null : defaults.data === undefined ? (
        defaults.isPending ? (
          <Loading what="default limits" />
        ) : (
          <Problem
            title="Could not load the default limits"
            error={defaults.error}
            retrying={defaults.isFetching}
            onRetry={() => void defaults.refetch()}
          />
        )
      ) : (
        <DefaultsForm limits={defaults.data} onClose={onClose} />
      )}
    </Dialog>
  );
}

function DefaultsForm({ limits, onClose }: { limits: KeyLimits; onClose: () => void }) {
  const [fields, setFields] = useState(fieldsOf(limits));
  const save = useAccessChange(async () => api.editKeyDefaults(limitsOf(fields)));
  function submit(event: SubmitEvent) {
    event.preventDefault();
    save.mutate(undefined, { onSuccess: onClose });
  }
  return (
    <form className={styles.form} onSubmit={submit}>
      <LimitFieldset fields={fields} onChange={setFields} empty="none" />
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
