import { useState } from "react";
import type { Rollout } from "@/api/types";
import { messageOf } from "@/components/Answers";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import type { IconName } from "@/components/Icon";
import { useAnnounce } from "@/components/Toasts";
import { useSteer, type Steering } from "@/data/rollouts";
import { actionsOf, titleOf, versionsOf } from "./words";

const ICONS: Record<Steering, IconName> = {
  pause: "pause",
  resume: "resume",
  promote: "upgrade",
  abort: "stop",
  allow: "approve",
};

const DONE: Record<Steering, string> = {
  pause: "Paused. No further wave begins.",
  resume: "Resumed.",
  promote: "Promoted. The next wave begins now.",
  abort: "Aborted. The nodes go back to the previous version.",
  allow: "The version is offered again.",
};

/** What a person can do with a rollout now; what is hard to undo is confirmed first. */
export function SteerButtons({ rollout }: { rollout: Rollout }) {
  const [asking, setAsking] = useState<Steering | null>(null);
  const announce = useAnnounce();
  const steer = useSteer();
  const title = titleOf(rollout);
  const close = () => {
    setAsking(null);
    steer.reset();
  };
  const send = (action: Steering) =>
    steer.mutate(
      { id: rollout.id, action },
      {
        onSuccess: () => {
          announce.done(DONE[action]);
          setAsking((asked) => (asked === action ? null : asked)); // another question may be open by now
        },
        onError: (error) => {
          if (action === "pause" || action === "resume")
            announce.failed(`Could not ${action} the rollout.`, messageOf(error));
        },
      },
    );
  const questions: Partial<Record<Steering, { title: string; action: string; text: string; danger?: boolean }>> = {
    promote: {
      title: `Begin the next wave of ${title}?`,
      action: "Promote",
      text: "The next wave begins now, and the current one is no longer watched. Its gates still hold: if one fails, every node goes back.",
    },
    abort: {
      title: `Abort ${title}?`,
      action: "Abort rollout",
      text: "Nodes that have the new version go back to the previous one. The version stays on offer.",
      danger: true,
    },
    allow: {
      title: `Allow ${rollout.backend} ${rollout.versions.map(({ version }) => version).join(", ")} again?`,
      action: "Allow",
      text: `It failed in ${versionsOf(rollout)}: ${rollout.reason}. Upgrades and nodes that join get it again.`,
    },
  };
  const question = asking === null ? undefined : questions[asking];
  return (
    <>
      {actionsOf(rollout).map(({ action, word }) => (
        <Button
          key={action}
          icon={ICONS[action]}
          look={
            action === "allow" || (action === "promote" && rollout.state === "awaiting_promotion") ? "primary" : "plain"
          }
          busy={steer.isPending && steer.variables.action === action && asking === null}
          onClick={() => (questions[action] === undefined ? send(action) : setAsking(action))}
        >
          {word}
        </Button>
      ))}
      <ConfirmDialog
        open={question !== undefined}
        onClose={close}
        title={question?.title ?? ""}
        action={question?.action ?? ""}
        danger={question?.danger ?? false}
        busy={steer.isPending}
        error={steer.error}
        onConfirm={() => asking !== null && send(asking)}
      >
        <p>{question?.text}</p>
      </ConfirmDialog>
    </>
  );
}
