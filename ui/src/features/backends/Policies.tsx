import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment, useState } from "react";
import { api } from "@/api/client";
import type { Policy } from "@/api/types";
import { Empty, Loading, messageOf, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Select } from "@/components/Choice";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Card } from "@/components/Page";
import { Pill } from "@/components/Pill";
import { useAnnounce } from "@/components/Toasts";
import { useNow } from "@/components/useNow";
import { formatSelector } from "@/format/selector";
import { formatDateTime } from "@/format/time";
import { shortDigest } from "./drift";
import { exceptionWords } from "./exceptions";
import styles from "./Policies.module.css";
import { galleryQueries, useOrder } from "./queries";

const ON_DRIFT = [
  { value: "heal", word: "Put it right by itself" },
  { value: "report", word: "Only mark it" },
  { value: "freeze", word: "Only mark it, no upgrades" },
] as const;

const where = (policy: Policy) =>
  Object.keys(policy.selector).length === 0 ? "every node" : `nodes with ${formatSelector(policy.selector)}`;

export function Policies() {
  const policies = useQuery(galleryQueries.policies());
  const [ending, setEnding] = useState<Policy | null>(null);
  const end = useOrder((id: string) => api.endPolicy(id));
  const close = () => setEnding(null);
  if (policies.data === undefined) {
    if (policies.isPending) return <Loading what="policies" />;
    return (
      <Problem
        title="The policies could not be read"
        error={policies.error}
        retrying={policies.isFetching}
        onRetry={() => void policies.refetch()}
      />
    );
  }
  if (policies.data.length === 0) {
    return (
      <Empty
        icon="settings"
        title="No policy yet"
        hint="Installing or deleting a backend on all nodes, or on nodes with certain labels, makes one: it also holds for machines that come later."
      />
    );
  }
  return (
    <Card>
      <ul>
        {policies.data.map((policy) => (
          <PolicyRow key={policy.id} policy={policy} onEnd={() => setEnding(policy)} />
        ))}
      </ul>
      <ConfirmDialog
        open={ending !== null}
        onClose={close}
        title={`End the policy for ${ending?.backend ?? ""}?`}
        action="End policy"
        danger
        busy={end.isPending}
        error={end.error}
        onConfirm={() => ending !== null && end.mutate(ending.id, { onSuccess: close })}
      >
        <p>
          Nothing is installed or deleted by this. Machines that come later no longer get it, and what differs on{" "}
          {ending === null ? "" : where(ending)} is no longer put right.
        </p>
      </ConfirmDialog>
    </Card>
  );
}

function PolicyRow({ policy, onEnd }: { policy: Policy; onEnd: () => void }) {
  const announce = useAnnounce();
  const change = useOrder((onDrift: string) => api.changePolicy(policy.id, onDrift));
  return (
    <li className={styles.policy}>
      <div>
        <p className={styles.title}>
          <strong>{policy.backend}</strong>
          <Pill tone={policy.ensure === "present" ? "green" : "violet"}>
            {policy.ensure === "present" ? "Wanted" : "Not wanted"}
          </Pill>
          on {where(policy)}
        </p>
        <p className={styles.soft}>
          since {formatDateTime(policy.created_at)}, by {policy.created_by}
          {policy.uri === "" ? "" : `, from ${policy.uri}`}
        </p>
        {policy.rolled_back_to.length === 0 ? null : (
          <p className={styles.soft}>
            Rolled back to{" "}
            {policy.rolled_back_to
              .map(({ variant, version, digest }) => `${variant} ${version === "" ? shortDigest(digest) : version}`)
              .join(", ")}
            ; nodes that join later get the same.
          </p>
        )}
        {policy.exception_count > 0 ? <Exceptions policy={policy} /> : null}
      </div>
      <Select
        label="When a node differs"
        about={`${policy.backend} on ${where(policy)}`}
        value={policy.on_drift}
        options={ON_DRIFT}
        onChange={(onDrift) =>
          change.mutate(onDrift, {
            onError: (error) => announce.failed("The policy was not changed.", messageOf(error)),
          })
        }
      />
      <Button
        size="small"
        icon="remove"
        aria-label={`End the policy for ${policy.backend} on ${where(policy)}`}
        onClick={onEnd}
      >
        End…
      </Button>
    </li>
  );
}

const MOST_EXCEPTIONS = 5;

function Exceptions({ policy }: { policy: Policy }) {
  const now = useNow();
  const shown = policy.exceptions.slice(0, MOST_EXCEPTIONS);
  const more = policy.exception_count - shown.length;
  return (
    <p className={styles.except}>
      except{" "}
      {shown.map((exception, at) => (
        <Fragment key={exception.node_id}>
          {at === 0 ? "" : ", "}
          <Link to="/nodes/$nodeId" params={{ nodeId: exception.node_id }}>
            {exception.node_name}
          </Link>{" "}
          <span
            title={
              exception.at === null
                ? undefined
                : `${formatDateTime(exception.at)}${exception.by === "" ? "" : `, by ${exception.by}`}`
            }
          >
            ({exceptionWords(exception, policy.backend, now)})
          </span>
        </Fragment>
      ))}
      {more > 0 ? ` and ${more} more` : ""}
    </p>
  );
}
