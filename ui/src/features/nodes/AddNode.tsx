import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Loading, Problem } from "@/components/Answers";
import { CopyBox } from "@/components/CopyBox";
import { Dialog } from "@/components/Dialog";
import { Icon } from "@/components/Icon";
import { Spinner } from "@/components/Spinner";
import styles from "./AddNode.module.css";
import { ApproveButton } from "./ApproveButton";
import { reachesOnlyThisMachine } from "./joinUrl";
import { joinQueries } from "./queries";
import type { SeenNode } from "@/data/nodes";
import { StatusPill } from "@/components/StatusPill";

export function AddNodeDialog({
  open,
  onClose,
  nodes,
}: {
  open: boolean;
  onClose: () => void;
  nodes: readonly SeenNode[];
}) {
  return (
    <Dialog
      open={open}
      onClose={onClose}
      wide
      title="Add a node"
      description={<p>Install Python 3.11 or newer and Corral on the machine, then run:</p>}
    >
      <JoinSteps nodes={nodes} />
    </Dialog>
  );
}

function JoinSteps({ nodes }: { nodes: readonly SeenNode[] }) {
  const join = useQuery(joinQueries.command());
  const [knownBefore] = useState(() => new Set(nodes.map(({ id }) => id)));
  const arrived = nodes.filter(({ id }) => !knownBefore.has(id));

  if (join.isPending) return <Loading what="the command" />;
  if (join.isError) {
    return (
      <Problem
        title="Could not load the command"
        error={join.error}
        retrying={join.isFetching}
        onRetry={() => void join.refetch()}
      />
    );
  }
  return (
    <>
      <CopyBox label="Command to run on the machine" text={join.data.command} />
      {reachesOnlyThisMachine(join.data.url) ? (
        <p className={styles.warning}>
          <Icon name="warning" />
          <span>
            <strong>{join.data.url}</strong> is reachable only from the machine that runs Corral. To add other machines,
            restart Corral with <code>--listen 0.0.0.0:PORT</code> and open this dialog again.
          </span>
        </p>
      ) : null}
      <p className={styles.note}>
        The token in this command lets a machine request to join. Unless automatic approval is enabled, the node stays
        “Pending” and gets no work until you approve it.
      </p>
      <p className={styles.note}>
        A machine that already runs a worker, such as the one started by <code>corral up</code>, needs a separate data
        directory for a second worker: add <code>--data-dir DIRECTORY</code>.
      </p>
      <div className={styles.arrivals} role="status">
        {arrived.length === 0 ? (
          <p className={styles.waiting}>
            <Spinner /> Waiting for a node to join…
          </p>
        ) : (
          <ul>
            {arrived.map((node) => (
              <li key={node.id} className={styles.arrival}>
                <strong>{node.name}</strong>
                <StatusPill status={node.state} />
                {node.approved ? null : <ApproveButton node={node} />}
              </li>
            ))}
          </ul>
        )}
      </div>
    </>
  );
}
