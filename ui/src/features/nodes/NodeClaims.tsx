/** Other machines that registered under this node's name. A person decides whether one of them replaces the node. */
import { useState } from "react";
import type { Node } from "@/api/types";
import { messageOf } from "@/components/Answers";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Icon } from "@/components/Icon";
import { useAnnounce } from "@/components/Toasts";
import { formatDateTime } from "@/format/time";
import styles from "./NodePanel.module.css";
import { useRejectClaim, useReplaceNode } from "./queries";

type Claim = Node["claims"][number];

export function NodeClaims({ node }: { node: Node }) {
  const [replacing, setReplacing] = useState<Claim | null>(null);
  const announce = useAnnounce();
  const replace = useReplaceNode();
  const reject = useRejectClaim();
  const close = () => setReplacing(null);

  return (
    <>
      {node.claims.map((claim) => (
        <div key={claim.id} className={styles.conflict} role="alert">
          <Icon name="warning" />
          <div>
            <strong>Another machine claims to be {node.name}.</strong>
            <p>
              {claim.localai ? "A LocalAI worker" : "A machine with another key"} registered from {claim.address}
              {claim.http_address === "" ? "" : ` and serves files at ${claim.http_address}`}. It is waiting for your
              decision; {node.name} is not affected.
            </p>
            <p className={styles.soft}>
              Claim {claim.id.slice(0, 8)}, created {formatDateTime(claim.made_at)}, last repeated{" "}
              {formatDateTime(claim.seen_at)}.
            </p>
            <p className={styles.claimActions}>
              <Button
                size="small"
                onClick={() => {
                  replace.reset();
                  setReplacing(claim);
                }}
              >
                Replace…
              </Button>
              <Button
                size="small"
                busy={reject.isPending}
                onClick={() =>
                  reject.mutate(
                    { node, claim: claim.id },
                    {
                      onSuccess: () => announce.done(`Rejected the machine at ${claim.address}.`),
                      onError: (error) => announce.failed("Could not reject the claim.", messageOf(error)),
                    },
                  )
                }
              >
                Reject
              </Button>
            </p>
          </div>
        </div>
      ))}
      <ConfirmDialog
        open={replacing !== null}
        onClose={close}
        title={`Replace ${node.name}?`}
        action="Replace"
        danger
        busy={replace.isPending}
        error={replace.error}
        onConfirm={() => {
          if (replacing === null) return;
          replace.mutate(
            { node, claim: replacing.id },
            {
              onSuccess: () => {
                announce.done(`The machine at ${replacing.address} is now ${node.name}.`);
                close();
              },
            },
          );
        }}
      >
        <p>
          The machine at {replacing?.address} becomes {node.name}, with its labels and settings. Do this after a machine
          was reinstalled or replaced.
        </p>
        <p>The machine that is currently {node.name} loses its credentials and is rejected.</p>
      </ConfirmDialog>
    </>
  );
}
