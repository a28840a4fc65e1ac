/** What can be ordered of backends. One dialog serves the whole page; cells, columns and gallery entries open it. */
import { useQuery } from "@tanstack/react-query";
import { createContext, use, useState, type ReactNode } from "react";
import { api } from "@/api/client";
import type { Target } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Choice } from "@/components/Choice";
import { Dialog, DialogActions } from "@/components/Dialog";
import { useAnnounce } from "@/components/Toasts";
import type { SeenNode } from "@/data/nodes";
import { deletionWords } from "./deletion";
import { galleryQueries, useOrder } from "./queries";
import { readTarget, TargetPicker, type TargetDraft } from "./TargetPicker";

export type Verb = "install" | "upgrade" | "rollback" | "delete";

export interface Order {
  verb: Verb;
  /** `name`, or `gallery@name`. */
  element: string;
  name: string;
  target: TargetDraft;
  /** Of a rollback: the digest to go back to. */
  to?: string;
}

const OrderContext = createContext<(order: Order) => void>(() => {
  throw new Error("useGive needs an Orders around it");
});

/** Opens the dialog in which an order is given. */
export const useGive = () => use(OrderContext);

const WORDS: Record<
  Verb,
  { title: (name: string) => string; action: string; done: (name: string) => string; all: string; text: ReactNode }
> = {
  install: {
    title: (name) => `Install ${name}`,
    action: "Install",
    done: (name) => `The installation of ${name} has begun.`,
    all: "All nodes",
    text: "Each node gets the build that fits it. Nodes that none fits are left out, and nodes that are away get it when they are back.",
  },
  upgrade: {
    title: (name) => `Upgrade ${name}`,
    action: "Upgrade",
    done: (name) => `The upgrade of ${name} has begun.`,
    all: "All nodes that have it",
    text: "Nodes fetch what the galleries offer now. Running models keep their old version until they are restarted, one after the other. The version before stays on disk for a rollback.",
  },
  rollback: {
    title: (name) => `Roll back ${name}`,
    action: "Roll back",
    done: (name) => `The rollback of ${name} has begun.`,
    all: "All nodes that have it",
    text: "Nodes go back to the version before, which is still on their disks: nothing is fetched. Nodes that have no version before say so.",
  },
  delete: {
    title: (name) => `Delete ${name}`,
    action: "Delete",
    done: (name) => `The deletion of ${name} has begun.`,
    all: "All nodes",
    text: "It is removed from the nodes' disks, with its older versions. Models that run on it there are stopped; where no other node serves them, they become unavailable.",
  },
};

function send({ verb, element, to }: Order, target: Target, onDrift: string): Promise<unknown> {
  switch (verb) {
    case "install":
      return api.installBackend(element, { ...target, ...(target.nodes === undefined ? { on_drift: onDrift } : {}) });
    case "upgrade":
      return api.upgradeBackend(element, target);
    case "rollback":
      return api.rollbackBackend(element, { ...target, ...(to === undefined ? {} : { to }) });
    case "delete":
      return api.deleteBackend(element, target);
  }
}

export function Orders({ nodes, children }: { nodes: readonly SeenNode[]; children: ReactNode }) {
  const [order, setOrder] = useState<Order | null>(null);
  const close = () => setOrder(null);
  return (
    <OrderContext value={setOrder}>
      {children}
      <Dialog
        open={order !== null}
        onClose={close}
        title={order === null ? "" : WORDS[order.verb].title(order.name)}
        description={order === null ? undefined : <p>{WORDS[order.verb].text}</p>}
      >
        {order === null ? null : (
          <OrderForm key={`${order.verb} ${order.element}`} order={order} nodes={nodes} onClose={close} />
        )}
      </Dialog>
    </OrderContext>
  );
}

function OrderForm({ order, nodes, onClose }: { order: Order; nodes: readonly SeenNode[]; onClose: () => void }) {
  const announce = useAnnounce();
  const [draft, setDraft] = useState(order.target);
  const [onDrift, setOnDrift] = useState("heal");
  const [problem, setProblem] = useState<string | null>(null);
  const give = useOrder((target: Target) => send(order, target, onDrift));
  const words = WORDS[order.verb];

  function submit() {
    const target = readTarget(draft);
    if (typeof target === "string") {
      setProblem(target);
      return;
    }
    setProblem(null);
    give.mutate(target, {
      onSuccess: () => {
        announce.done(words.done(order.name));
        onClose();
      },
    });
  }

  return (
    <>
      <TargetPicker nodes={nodes} draft={draft} onChange={setDraft} all={words.all} later={order.verb === "install"} />
      {order.verb === "install" && draft.kind !== "nodes" ? (
        <Choice
          label="When a node differs from it later"
          value={onDrift}
          onChange={setOnDrift}
          options={[
            { value: "heal", word: "Put it right by itself" },
            { value: "report", word: "Only mark it" },
            { value: "freeze", word: "Only mark it, and let nobody upgrade it" },
          ]}
        />
      ) : null}
      {order.verb === "delete" ? (
        <Consequence order={order} target={readTarget(draft)} isEverywhere={draft.kind === "all"} />
      ) : null}
      {problem !== null ? <InlineError error={problem} /> : give.isError ? <InlineError error={give.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button look={order.verb === "delete" ? "danger" : "primary"} busy={give.isPending} onClick={submit}>
          {words.action}
        </Button>
      </DialogActions>
    </>
  );
}

/** Which models a delete ends: told before it is given. */
function Consequence({
  order,
  target,
  isEverywhere,
}: {
  order: Order;
  target: Target | string;
  isEverywhere: boolean;
}) {
  const isAsked = typeof target !== "string";
  const uses = useQuery({ ...galleryQueries.uses(order.element, isAsked ? target : {}), enabled: isAsked });
  if (uses.isError) return <InlineError error={uses.error} />;
  if (!isAsked || uses.data === undefined) return null;
  const { stops, notes } = deletionWords(order.name, uses.data.models, isEverywhere);
  return stops.length === 0 && notes.length === 0 ? null : (
    <div role="status">
      <ul>
        {stops.map((stop) => (
          <li key={stop}>
            <strong>{stop}</strong>
          </li>
        ))}
      </ul>
      <p>{notes.join(" ")}</p>
    </div>
  );
}
