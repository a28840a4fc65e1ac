import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Icon } from "@/components/Icon";
import { useAnnounce } from "@/components/Toasts";
import { nodeQueries, type SeenNode } from "@/data/nodes";
import { useRetry } from "@/data/operations";
import styles from "./Attention.module.css";
import type { Tone } from "./concerns";

export const MOST_LISTED = 5;

interface ItemProps {
  tone: Tone;
  text: string;
  detail?: string;
  action?: ReactNode;
}

export function Item({ tone, text, detail = "", action }: ItemProps) {
  return (
    <li className={styles.item}>
      <span className={styles[tone]}>
        <Icon name={tone === "wait" ? "computer" : "warning"} />
      </span>
      <span className={styles.text}>
        {text}
        {detail === "" ? null : (
          <span className={styles.detail} title={detail}>
            {detail}
          </span>
        )}
      </span>
      <span className={styles.action}>{action}</span>
    </li>
  );
}

export function Rest({ count, what, to }: { count: number; what: string; to: ReactNode }) {
  if (count <= MOST_LISTED) return null;
  return <Item tone="wait" text={`${count - MOST_LISTED} more ${what}`} action={to} />;
}

export function Approve({ node }: { node: SeenNode }) {
  const client = useQueryClient();
  const announce = useAnnounce();
  const approve = useMutation({
    mutationFn: () => api.approveNode(node.id),
    onSettled: () => client.invalidateQueries({ queryKey: nodeQueries.list().queryKey }),
    onError: (error) => announce.failed(`Could not approve ${node.name}.`, messageOf(error)),
  });
  return (
    <Button
      size="small"
      look="primary"
      icon="approve"
      busy={approve.isPending}
      aria-label={`Approve ${node.name}`}
      onClick={() => approve.mutate()}
    >
      Approve
    </Button>
  );
}

export function TryAgain({ what, busy, onClick }: { what: string; busy: boolean; onClick: () => void }) {
  return (
    <Button size="small" icon="retry" busy={busy} aria-label={`Retry loading ${what}`} onClick={onClick}>
      Try again
    </Button>
  );
}

export function Retry({ id, nodeId, what }: { id: string; nodeId?: string; what: string }) {
  const retry = useRetry();
  const announce = useAnnounce();
  return (
    <Button
      size="small"
      icon="retry"
      busy={retry.isPending}
      aria-label={`Retry ${what}`}
      onClick={() =>
        retry.mutate(
          { id, ...(nodeId === undefined ? {} : { nodeId }) },
          { onError: (error) => announce.failed(`Could not retry ${what}.`, messageOf(error)) },
        )
      }
    >
      Retry
    </Button>
  );
}
