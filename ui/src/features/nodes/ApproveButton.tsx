import type { Node } from "@/api/types";
import { messageOf } from "@/components/Answers";
import { Button } from "@/components/Button";
import { useAnnounce } from "@/components/Toasts";
import { useApproveNode } from "./queries";

export function ApproveButton({ node, size = "small" }: { node: Node; size?: "small" | "regular" }) {
  const approve = useApproveNode();
  const announce = useAnnounce();
  return (
    <Button
      look="primary"
      size={size}
      icon="approve"
      busy={approve.isPending}
      aria-label={`Approve ${node.name}`}
      onClick={() =>
        approve.mutate(node, {
          onSuccess: () => announce.done(`Approved ${node.name}.`),
          onError: (error) => announce.failed(`Could not approve ${node.name}.`, messageOf(error)),
        })
      }
    >
      Approve
    </Button>
  );
}
