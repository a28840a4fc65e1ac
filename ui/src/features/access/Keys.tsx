import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import type { Key, Usage } from "@/api/types";
import { Empty, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { cx } from "@/components/cx";
import { Card } from "@/components/Page";
import { Pill } from "@/components/Pill";
import { useNow } from "@/components/useNow";
import { formatCount } from "@/format/rates";
import { plural } from "@/format/text";
import { formatDateTime } from "@/format/time";
import styles from "./Keys.module.css";
import { describeLimits } from "./limits";
import { LimitsOfKeyDialog } from "./LimitsOfKeyDialog";
import { ModelsOfKeyDialog } from "./ModelsOfKeyDialog";
import { accessQueries, useAccessChange } from "./queries";

export function Keys({ text, onCreate }: { text: string; onCreate: () => void }) {
  const keys = useQuery(accessQueries.keys());
  const usage = useQuery(accessQueries.usage());
  const [revoking, setRevoking] = useState<Key | null>(null);
  const [editing, setEditing] = useState<Key | null>(null);
  const [limiting, setLimiting] = useState<Key | null>(null);
  const revoke = useAccessChange((id: string) => api.revokeKey(id));
  const close = () => setRevoking(null);
  if (keys.data === undefined) {
    if (keys.isPending) return <Loading what="keys" />;
    return (
      <Problem
        title="Could not load keys"
        error={keys.error}
        retrying={keys.isFetching}
        onRetry={() => void keys.refetch()}
      />
    );
  }
  if (keys.data.length === 0) {
    return (
      <Empty
        icon="access"
        title="No API keys yet"
        hint="Give each program and each person a separate key, so that usage can be counted, limited and revoked per key."
      >
        <Button look="primary" icon="add" onClick={onCreate}>
          New key
        </Button>
      </Empty>
    );
  }
  const word = text.trim().toLowerCase();
  const found = keys.data
    .filter(({ name, scope, models }) => `${name} ${scope} ${models?.join(" ") ?? ""}`.toLowerCase().includes(word))
    .sort(activeFirst);
  if (found.length === 0)
    return (
      <Empty
        icon="search"
        title="No matching keys"
        hint={`None of ${plural(keys.data.length, "key")} matches the search.`}
      />
    );
  return (
    <Card>
      <ul>
        {found.map((key) => (
          <KeyRow
            key={key.id}
            apiKey={key}
            used={
              usage.data === undefined
                ? usage.isError
                  ? "failed"
                  : "unknown"
                : usage.data.find(({ key_id }) => key_id === key.id)
            }
            onRevoke={() => setRevoking(key)}
            onEdit={() => setEditing(key)}
            onLimit={() => setLimiting(key)}
          />
        ))}
      </ul>
      <ConfirmDialog
        open={revoking !== null}
        onClose={close}
        title={`Revoke ${revoking?.name ?? ""}?`}
        action="Revoke"
        danger
        busy={revoke.isPending}
        error={revoke.error}
        onConfirm={() => revoking !== null && revoke.mutate(revoking.id, { onSuccess: close })}
      >
        <p>
          All frontends reject the key within five seconds, and browsers signed in with it are signed out. This cannot
          be undone. Its usage counts are kept.
        </p>
      </ConfirmDialog>
      <LimitsOfKeyDialog apiKey={limiting} onClose={() => setLimiting(null)} />
      <ModelsOfKeyDialog apiKey={editing} onClose={() => setEditing(null)} />
    </Card>
  );
}

const activeFirst = (a: Key, b: Key) =>
  Number(a.revoked_at !== null) - Number(b.revoked_at !== null) || a.name.localeCompare(b.name);

interface KeyRowProps {
  apiKey: Key;
  /** Undefined when the key was not used. */
  used: Usage | "unknown" | "failed" | undefined;
  onRevoke: () => void;
  onEdit: () => void;
  onLimit: () => void;
}

function KeyRow({ apiKey, used, onRevoke, onEdit, onLimit }: KeyRowProps) {
  const isRevoked = apiKey.revoked_at !== null;
  const now = useNow();
  const isExpired = apiKey.expires_at !== null && Date.parse(apiKey.expires_at) <= now;
  const limits = describeLimits(apiKey.in_force);
  return (
    <li className={cx(styles.key, isRevoked && styles.revoked)}>
      <div className={styles.names}>
        <p className={styles.title}>
          <strong>{apiKey.name}</strong>
          <Pill tone={apiKey.scope === "admin" ? "violet" : "blue"}>{apiKey.scope}</Pill>
          {isRevoked ? <Pill tone="grey">Revoked</Pill> : isExpired ? <Pill tone="grey">Expired</Pill> : null}
        </p>
        <p className={styles.soft}>
          <code>{apiKey.hint}</code> · created {formatDateTime(apiKey.created_at)} by {apiKey.created_by}
          {isRevoked ? ` · revoked ${formatDateTime(apiKey.revoked_at)}` : ""}
        </p>
        <p className={styles.soft}>
          {apiKey.models === null
            ? "All models"
            : apiKey.models.length === 0
              ? "No models"
              : `Only ${apiKey.models.join(", ")}`}
          {limits === "" ? "" : ` · ${limits}`}
          {apiKey.expires_at === null
            ? ""
            : ` · ${isExpired ? "expired" : "expires"} ${formatDateTime(apiKey.expires_at)}`}
        </p>
      </div>
      <p className={styles.counts}>
        {used === undefined ? (
          "not used in 30 days"
        ) : used === "unknown" ? null : used === "failed" ? (
          "could not load usage"
        ) : (
          <>
            {plural(used.requests, "request")} in 30 days
            <span className={styles.soft}>
              {formatCount(used.tokens_in)} tokens in, {formatCount(used.tokens_out)} out
            </span>
          </>
        )}
      </p>
      {isRevoked ? null : (
        <span className={styles.actions}>
          <Button size="small" aria-label={`Limits of ${apiKey.name}`} onClick={onLimit}>
            Limits…
          </Button>
          <Button size="small" aria-label={`Models of ${apiKey.name}`} onClick={onEdit}>
            Models…
          </Button>
          <Button size="small" aria-label={`Revoke ${apiKey.name}`} onClick={onRevoke}>
            Revoke…
          </Button>
        </span>
      )}
    </li>
  );
}
