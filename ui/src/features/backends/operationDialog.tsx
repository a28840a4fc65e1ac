/** The dialog that starts a backend operation. Cells, columns and gallery entries of the page open the same one. */
import { useQuery } from "@tanstack/react-query";
import { createContext, use, useState, type ReactNode } from "react";
import { api } from "@/api/client";
import type { OnDrift, Target, Verb } from "@/api/types";
import { InlineError } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Choice } from "@/components/Choice";
import { Dialog, DialogActions } from "@/components/Dialog";
import { TextField } from "@/components/TextField";
import { useAnnounce } from "@/components/Toasts";
import type { SeenNode } from "@/data/nodes";
import { deletionWords } from "./deletion";
import { ON_DRIFT } from "./drift";
import { previewWords } from "./preview";
import { galleryQueries, useBackendMutation } from "./queries";
import { readTarget, TargetPicker, type TargetDraft } from "./TargetPicker";

export interface OperationRequest {
  verb: Verb;
  /** `name`, or `gallery@name`. */
  element: string;
  name: string;
  target: TargetDraft;
  /** Rollback: the digest to return to. Pin: the version to begin with. */
  to?: string;
}

const RequestContext = createContext<(request: OperationRequest) => void>(() => {
  throw new Error("useRequestOperation must be used inside OperationDialog");
});

/** Opens the dialog for an operation. */
export const useRequestOperation = () => use(RequestContext);

const WORDS: Record<
  Verb,
  { title: (name: string) => string; action: string; done: (name: string) => string; all: string; text: ReactNode }
> = {
  install: {
    title: (name) => `Install ${name}`,
    action: "Install",
    done: (name) => `Started install of ${name}.`,
    all: "All nodes",
    text: "Each node gets the build that fits it. Nodes without a matching build are skipped. Offline nodes install it when they are back online.",
  },
  upgrade: {
    title: (name) => `Upgrade ${name}`,
    action: "Upgrade",
    done: (name) => `Started upgrade of ${name}.`,
    all: "All nodes with this backend",
    text: "Nodes download the version that the galleries offer now. Running models keep the old version until they are restarted, one after another. The previous version stays on disk for a rollback.",
  },
  rollback: {
    title: (name) => `Roll back ${name}`,
    action: "Roll back",
    done: (name) => `Started rollback of ${name}.`,
    all: "All nodes with this backend",
    text: "Nodes return to the previous version, which is still on disk; nothing is downloaded. That version stays pinned, also for nodes that join later. Nodes without a previous version report an error.",
  },
  pin: {
    title: (name) => `Pin ${name}`,
    action: "Pin",
    done: (name) => `Started pinning ${name}.`,
    all: "All nodes",
    text: "Nodes with another version change to this one. Nodes that join, return or lose their disk get it too. Upgrades skip pinned nodes until they follow the galleries again.",
  },
  follow: {
    title: (name) => `Follow the galleries with ${name}`,
    action: "Follow",
    done: (name) => `${name} follows the galleries again.`,
    all: "All nodes",
    text: "This ends the pins of these nodes. Installed versions stay until an upgrade; nodes that join later get the newest version.",
  },
  delete: {
    title: (name) => `Delete ${name}`,
    action: "Delete",
    done: (name) => `Started delete of ${name}.`,
    all: "All nodes",
    text: "Corral removes the backend and its older versions from the disks of these nodes. Models that use it there are stopped; models without a replica on another node become unavailable.",
  },
};

interface Details {
  onDrift: OnDrift;
  version: string;
  reason: string;
}

function send(
  { verb, element, to }: OperationRequest,
  target: Target,
  { onDrift, version, reason }: Details,
): Promise<unknown> {
  switch (verb) {
    case "install":
      return api.installBackend(element, {
        ...target,
        version: version.trim(),
        ...(target.nodes === undefined ? { on_drift: onDrift } : {}),
      });
    case "upgrade":
      return api.upgradeBackend(element, target);
    case "rollback":
      return api.rollbackBackend(element, { ...target, reason, ...(to === undefined ? {} : { to }) });
    case "pin":
      return api.pinBackend(element, { ...target, version: version.trim(), reason });
    case "follow":
      return api.followBackend(element, { ...target, reason });
    case "delete":
      return api.deleteBackend(element, target);
  }
}

export function OperationDialog({ nodes, children }: { nodes: readonly SeenNode[]; children: ReactNode }) {
  const [request, setRequest] = useState<OperationRequest | null>(null);
  const close = () => setRequest(null);
  return (
    <RequestContext value={setRequest}>
      {children}
      <Dialog
        open={request !== null}
        onClose={close}
        title={request === null ? "" : WORDS[request.verb].title(request.name)}
        description={request === null ? undefined : <p>{WORDS[request.verb].text}</p>}
      >
        {request === null ? null : (
          <RequestForm key={`${request.verb} ${request.element}`} request={request} nodes={nodes} onClose={close} />
        )}
      </Dialog>
    </RequestContext>
  );
}

function RequestForm({
  request,
  nodes,
  onClose,
}: {
  request: OperationRequest;
  nodes: readonly SeenNode[];
  onClose: () => void;
}) {
  const announce = useAnnounce();
  const [draft, setDraft] = useState(request.target);
  const [onDrift, setOnDrift] = useState<OnDrift>("correct");
  const [problem, setProblem] = useState<string | null>(null);
  const [version, setVersion] = useState(request.to ?? "");
  const [reason, setReason] = useState("");
  const start = useBackendMutation((target: Target) => send(request, target, { onDrift, version, reason }));
  const words = WORDS[request.verb];

  function submit() {
    const target = readTarget(draft);
    if (typeof target === "string") {
      setProblem(target);
      return;
    }
    if (request.verb === "pin" && version.trim() === "") {
      setProblem("Enter a version, or the beginning of a digest.");
      return;
    }
    setProblem(null);
    start.mutate(target, {
      onSuccess: () => {
        announce.done(words.done(request.name));
        onClose();
      },
    });
  }

  return (
    <>
      <TargetPicker
        nodes={nodes}
        draft={draft}
        onChange={setDraft}
        all={words.all}
        later={request.verb === "install"}
      />
      {request.verb === "install" && draft.kind !== "nodes" ? (
        <Choice label="On drift" value={onDrift} onChange={setOnDrift} options={ON_DRIFT} />
      ) : null}
      {request.verb === "pin" || request.verb === "install" ? (
        <TextField
          label="Version"
          required={request.verb === "pin"}
          hint={
            request.verb === "pin"
              ? "A version number, or the beginning of a digest."
              : "Optional. A version that is installed and pinned; otherwise the pinned or newest one."
          }
          value={version}
          onChange={({ target }) => setVersion(target.value)}
        />
      ) : null}
      {request.verb === "pin" || request.verb === "rollback" || request.verb === "follow" ? (
        <TextField
          label="Reason"
          hint="Optional. Shown wherever the pin is shown."
          value={reason}
          onChange={({ target }) => setReason(target.value)}
        />
      ) : null}
      {request.verb === "upgrade" ? <Plan element={request.element} target={readTarget(draft)} /> : null}
      {request.verb === "delete" ? (
        <Consequence request={request} target={readTarget(draft)} isEverywhere={draft.kind === "all"} />
      ) : null}
      {problem !== null ? <InlineError error={problem} /> : start.isError ? <InlineError error={start.error} /> : null}
      <DialogActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button look={request.verb === "delete" ? "danger" : "primary"} busy={start.isPending} onClick={submit}>
          {words.action}
        </Button>
      </DialogActions>
    </>
  );
}

/** The waves of an upgrade and how each node changes, shown before it is started. */
function Plan({ element, target }: { element: string; target: Target | string }) {
  const isValid = typeof target !== "string";
  const preview = useQuery({ ...galleryQueries.preview(element, isValid ? target : {}), enabled: isValid });
  if (!isValid) return null;
  if (preview.isError) return <InlineError error={preview.error} />;
  if (preview.data === undefined) return <p role="status">Reading what would change.</p>;
  const { title, waves, notes } = previewWords(preview.data);
  return (
    <div role="status" aria-label="What would change">
      <p>{title}</p>
      <ul>
        {waves.flatMap(({ name, nodes }) => nodes.map((node) => <li key={`${name} ${node}`}>{`${name}: ${node}`}</li>))}
      </ul>
      {notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
    </div>
  );
}

/** The models that a delete stops, shown before it is confirmed. */
function Consequence({
  request,
  target,
  isEverywhere,
}: {
  request: OperationRequest;
  target: Target | string;
  isEverywhere: boolean;
}) {
  const isValid = typeof target !== "string";
  const dependents = useQuery({
    ...galleryQueries.dependents(request.element, isValid ? target : {}),
    enabled: isValid,
  });
  if (dependents.isError) return <InlineError error={dependents.error} />;
  if (!isValid || dependents.data === undefined) return null;
  const { stops, notes } = deletionWords(request.name, dependents.data.models, isEverywhere);
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
