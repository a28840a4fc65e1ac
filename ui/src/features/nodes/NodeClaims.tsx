/** Other machines that registered under this node's name and wait for a person to say whether they replace it. */
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
  const [asked, setAsked] = useState<Claim | null>(null);
  const announce = useAnnounce();
  const replace = useReplaceNode();
  const reject = useRejectClaim();
  const close = () => setAsked(null);

  return (
    <>
      {node.claims.map((claim) => (
        <div key={claim.id} className={styles.conflict} role="alert">
          <Icon name="warning" />
          <div>
            <strong>Another machine claims to be {node.name}.</strong>
            <p>
              {claim.localai ? "A LocalAI worker" : "A machine with another key"} registered from {claim.address}
              {claim.http_address === "" ? "" : ` and serves its files at ${claim.http_address}`}. It waits; {node.name}{" "}
              goes on as it is.
            </p>
            <p className={styles.soft}>
              Claim {claim.id.slice(0, 8)}, made {formatDateTime(claim.made_at)}, last repeated{" "}
              {formatDateTime(claim.seen_at)}.
            </p>
            <p className={styles.claimActions}>
              <Button
                size="small"
                onClick={() => {
                  replace.reset();
                  setAsked(claim);
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
                      onSuccess: () => announce.done(`The machine at ${claim.address} is refused as ${node.name}.`),
                      onError: (error) => announce.failed("The claim could not be rejected.", messageOf(error)),
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
        open={asked !== null}
        onClose={close}
        title={`Replace ${node.name}?`}
        action="Replace"
        danger
        busy={replace.isPending}
        error={replace.error}
        onConfirm={() => {
          if (asked === null) return;
          replace.mutate(
            { node, claim: asked.id },
            {
              onSuccess: () => {
                announce.done(`The machine at ${asked.address} is ${node.name} from now on.`);
                close();
              },
            },
          );
        }}
      >
        <p>
          The machine at {asked?.address} becomes {node.name}, with its labels and settings. Do this after a machine was
          reinstalled or exchanged.
        </p>
        <p>The machine that is {node.name} now loses its credentials and is refused from then on.</p>
      </ConfirmDialog>
    </>
  );
}
