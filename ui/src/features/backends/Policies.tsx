import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment, useState } from "react";
import { api } from "@/api/client";
import type { Policy, PolicyRequest } from "@/api/types";
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
import { ON_DRIFT } from "./drift";
import { exceptionWords } from "./exceptions";
import styles from "./Policies.module.css";
import { rolloutWords, STRATEGIES, withStrategy } from "./policyRollout";
import { galleryQueries, useBackendMutation } from "./queries";

const where = (policy: Policy) =>
  Object.keys(policy.selector).length === 0 ? "every node" : `nodes with ${formatSelector(policy.selector)}`;

/** Which version the policy's nodes get: the newest, or the pinned ones. */
function versionWords({ pins }: Policy): string {
  if (pins.length === 0) return "Version: follows the galleries.";
  const words = pins.map(({ summary, selector, nodes }) => {
    const some = nodes.length > 0 ? ` on ${nodes.length === 1 ? "one node" : `${nodes.length} nodes`}` : "";
    return `${summary}${Object.keys(selector).length === 0 ? some : ` on nodes with ${formatSelector(selector)}`}`;
  });
  return `Version: ${words.join("; ")}.`;
}

export function Policies() {
  const policies = useQuery(galleryQueries.policies());
  const [ending, setEnding] = useState<Policy | null>(null);
  const end = useBackendMutation((id: string) => api.endPolicy(id));
  const close = () => setEnding(null);
  if (policies.data === undefined) {
    if (policies.isPending) return <Loading what="policies" />;
    return (
      <Problem
        title="Could not load policies"
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
        title="No policies yet"
        hint="Install or delete a backend on all nodes, or on nodes with labels, to create a policy. It also applies to nodes that join later."
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
          Ending the policy installs and deletes nothing. It no longer applies to nodes that join later, and drift on{" "}
          {ending === null ? "" : where(ending)} is no longer corrected.
        </p>
      </ConfirmDialog>
    </Card>
  );
}

function PolicyRow({ policy, onEnd }: { policy: Policy; onEnd: () => void }) {
  const announce = useAnnounce();
  const change = useBackendMutation((request: PolicyRequest) => api.changePolicy(policy.id, request));
  const send = (request: PolicyRequest) =>
    change.mutate(request, {
      onError: (error) => announce.failed("Could not change the policy.", messageOf(error)),
    });
  return (
    <li className={styles.policy}>
      <div>
        <p className={styles.title}>
          <strong>{policy.backend}</strong>
          <Pill tone={policy.ensure === "present" ? "green" : "violet"}>
            {policy.ensure === "present" ? "Present" : "Absent"}
          </Pill>
          on {where(policy)}
        </p>
        <p className={styles.soft}>
          since {formatDateTime(policy.created_at)}, by {policy.created_by}
          {policy.uri === "" ? "" : `, from ${policy.uri}`}
        </p>
        {policy.ensure === "present" ? <p className={styles.soft}>{versionWords(policy)}</p> : null}
        {policy.rollout === null ? null : <p className={styles.soft}>{rolloutWords(policy.rollout)}</p>}
        {policy.exception_count > 0 ? <Exceptions policy={policy} /> : null}
      </div>
      <Select
        label="On drift"
        about={`${policy.backend} on ${where(policy)}`}
        value={policy.on_drift}
        options={ON_DRIFT}
        onChange={(onDrift) => send({ on_drift: onDrift })}
      />
      {policy.ensure === "present" ? (
        <Select
          label="Rollout"
          about={`${policy.backend} on ${where(policy)}`}
          value={policy.rollout?.strategy ?? "default"}
          options={STRATEGIES}
          onChange={(strategy) => send({ rollout: withStrategy(policy.rollout, strategy) })}
        />
      ) : null}
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
