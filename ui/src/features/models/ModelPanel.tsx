import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "@/api/client";
import type { Load, Model, Replica, Scheduling, ModelExplanation } from "@/api/types";
import { InlineError, Loading, messageOf, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Fact, Facts, PanelActions, PanelHeader, PanelSection } from "@/components/PanelParts";
import { Pill } from "@/components/Pill";
import { Progress } from "@/components/Progress";
import { useAnnounce } from "@/components/Toasts";
import { modelQueries } from "@/data/models";
import { failureCauses, modelState, REPLICA_WORDS } from "@/data/modelState";
import { useNodeNames } from "@/data/nodes";
import { formatBytes, formatShare } from "@/format/bytes";
import { formatEta } from "@/format/rates";
import { plural, sentence } from "@/format/text";
import { formatDateTime } from "@/format/time";
import { ConfigDialog } from "./ConfigEditor";
import { Endpoints } from "./Endpoints";
import { History } from "./History";
import styles from "./ModelPanel.module.css";
import { PendingNotice } from "./PendingNotice";
import { modelDetailQueries, useModelChange } from "./queries";
import { ScaleDialog } from "./ScaleDialog";
import { footprintWords, LOAD_WORDS, restoreWords, schedulingWords, whichFile } from "./states";
import { UnloadDialog, UnloadOnNodeDialog } from "./UnloadDialogs";

type OpenDialog = "unload" | "delete" | "scale" | "edit" | null;

export function ModelPanel({ model, onClose }: { model: Model; onClose: () => void }) {
  const why = useQuery(modelDetailQueries.why(model.name));
  const read = useQuery({
    ...modelQueries.replicas(),
    select: (all) => all.filter(({ model_name }) => model_name === model.name),
  });
  const serving = read.data ?? [];
  // Attached endpoints have a section of their own: nobody starts or stops them.
  const replicas = serving.filter(({ backend_type }) => backend_type !== "attached");
  const scheduling = useQuery({
    ...modelQueries.scheduling(),
    select: (all) => all.find(({ model_name }) => model_name === model.name),
  }).data;
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const announce = useAnnounce();
  const load = useModelChange(() => api.loadModel(model.name));
  const remove = useModelChange(() => api.deleteModel(model.name));
  const discard = useModelChange(() => api.rollbackModel(model.name, model.revision));
  const loads = why.data?.loads ?? [];
  const state = modelState(read.data, why.data?.loads);
  const failed = state.word === "Failed" ? (failureCauses(replicas, loads)[0] ?? "") : "";
  const unsatisfiable = why.data?.unsatisfiable ?? scheduling?.unsatisfiable_reason ?? "";
  const restore = restoreWords(model.number, failed === "" ? null : why.data?.restorable);
  const close = () => setOpenDialog(null);
  const isAlias = model.alias_of !== "";
  const isStarted = !isAlias && model.backend !== "attached";

  return (
    <>
      <PanelHeader title={model.name} id={model.name} onClose={onClose}>
        {isAlias ? (
          <p className={styles.status}>
            <Pill tone="violet">Alias of {model.alias_of}</Pill>{" "}
            <Link to="/models" search={{ open: model.alias_of }}>
              Show {model.alias_of}
            </Link>
          </p>
        ) : (
          <p className={styles.status}>
            <Pill tone={state.tone}>{state.label}</Pill>{" "}
            {isStarted
              ? schedulingWords(scheduling, state.word === "Unknown" ? undefined : state.ready)
              : "served by attached endpoints"}
          </p>
        )}
        {failed === "" ? null : (
          <p className={styles.failure} title={failed}>
            {failed}
          </p>
        )}
      </PanelHeader>
      {model.description === "" ? null : <p className={styles.description}>{model.description}</p>}
      {unsatisfiable === "" ? null : <InlineError error={`Desired replicas cannot be placed: ${unsatisfiable}`} />}
      {restore === "" ? null : <InlineError error={restore} />}
      {model.pending === null ? null : (
        <div className={styles.notice}>
          <PendingNotice pending={model.pending} />
        </div>
      )}
      <PanelActions>
        {model.pending === null ? null : (
          <Button
            icon="back"
            busy={discard.isPending}
            onClick={() =>
              discard.mutate(undefined, {
                onSuccess: () => announce.done(`Discarded the change to ${model.name}.`),
                onError: (error) =>
                  announce.failed(`Could not discard the change to ${model.name}.`, messageOf(error, model.name)),
              })
            }
          >
            Discard change
          </Button>
        )}
        {!isStarted ? null : (
          <Button
            look="primary"
            icon="resume"
            busy={load.isPending}
            onClick={() =>
              load.mutate(undefined, {
                onError: (error) => announce.failed(`Could not load ${model.name}.`, messageOf(error, model.name)),
              })
            }
          >
            Load
          </Button>
        )}
        {replicas.length > 0 || loads.length > 0 ? (
          <Button icon="stop" onClick={() => setOpenDialog("unload")}>
            Unload…
          </Button>
        ) : null}
        {!isStarted ? null : (
          <Button icon="settings" onClick={() => setOpenDialog("scale")}>
            Scale…
          </Button>
        )}
        <Button icon="edit" onClick={() => setOpenDialog("edit")}>
          Edit…
        </Button>
        <Link to="/chat" search={{ model: model.name }} className={styles.chat}>
          Chat
        </Link>
        <Button icon="remove" onClick={() => setOpenDialog("delete")}>
          Delete…
        </Button>
      </PanelActions>

      {loads.length === 0 ? null : (
        <PanelSection title={loads.every(({ error }) => error) ? "Failed loads" : "Loading"}>
          <ul className={styles.loads}>
            {loads.map((each, index) => (
              <LoadRow key={index} load={each} />
            ))}
          </ul>
        </PanelSection>
      )}
      {!isStarted ? null : (
        <PanelSection title={read.data === undefined ? "Replicas" : `Replicas (${replicas.length})`}>
          {read.isPending ? (
            <Loading what="replicas" />
          ) : read.data === undefined ? (
            <Problem
              title="Could not load replicas"
              error={read.error}
              retrying={read.isFetching}
              onRetry={() => void read.refetch()}
            />
          ) : replicas.length === 0 ? (
            <p className={styles.soft}>None. Choose “Load”, or send a request to load the model.</p>
          ) : (
            <Replicas model={model} replicas={replicas} scheduling={scheduling} />
          )}
        </PanelSection>
      )}
      {isAlias ? null : <Endpoints model={model} />}
      <PanelSection title="Configuration">
        <Facts>
          <Fact name="Backend">{model.backend || "none"}</Fact>
          <Fact name="Weights">
            <code>{model.model || "none"}</code>
          </Fact>
          <Fact name="Context">{model.context_size === null ? "backend default" : `${model.context_size} tokens`}</Fact>
          {why.data === undefined ? null : <Fact name="Footprint">{footprintWords(why.data.footprint_bytes)}</Fact>}
          {model.aliases.length === 0 ? null : <Fact name="Aliases">{model.aliases.join(", ")}</Fact>}
          <Fact name="Uses">
            {model.known_usecases.join(", ") || (model.embeddings ? "embeddings" : "not specified")}
          </Fact>
          <Fact name="Revision">
            {model.number} (<code title={model.revision}>{model.revision.slice(0, 12)}</code>)
          </Fact>
          <Fact name="Changed">
            {formatDateTime(model.changed_at)}, by {model.changed_by}
          </Fact>
        </Facts>
      </PanelSection>
      <History model={model} />
      <PanelSection title="Placement decisions">
        {why.isPending ? (
          <Loading what="decisions" />
        ) : why.isError ? (
          <Problem title="Could not load decisions" error={why.error} onRetry={() => void why.refetch()} />
        ) : (
          <Decisions decisions={why.data.decisions} />
        )}
      </PanelSection>

      <UnloadDialog
        open={openDialog === "unload"}
        model={model.name}
        scheduling={scheduling}
        replicas={replicas}
        loadCount={loads.length}
        onClose={close}
        onScale={() => setOpenDialog("scale")}
      />
      <ConfirmDialog
        open={openDialog === "delete"}
        onClose={close}
        title={`Delete ${model.name}?`}
        action="Delete"
        danger
        busy={remove.isPending}
        error={remove.error}
        onConfirm={() =>
          remove.mutate(undefined, {
            onSuccess: () => {
              announce.done(`Deleted ${model.name}.`);
              onClose();
            },
          })
        }
      >
        <p>
          Requests for this model are rejected, and{" "}
          {replicas.length === 0
            ? "its configuration is removed"
            : plural(replicas.length, "replica stops", "replicas stop")}
          . The revisions of its configuration are kept.
        </p>
      </ConfirmDialog>
      <ScaleDialog
        key={`${model.name} ${openDialog === "scale"}`}
        open={openDialog === "scale"}
        model={model.name}
        scheduling={scheduling}
        onClose={close}
      />
      <ConfigDialog open={openDialog === "edit"} name={model.name} onClose={close} />
    </>
  );
}

function LoadRow({ load }: { load: Load }) {
  const bytes = load.total_bytes > 0 ? formatShare(load.bytes_sent, load.total_bytes) : "";
  return (
    <li className={styles.load}>
      <span className={styles.loadHead}>
        <strong>{load.node ?? "no node yet"}</strong>{" "}
        <Pill tone={load.error ? "red" : load.state === "pending" ? "yellow" : "blue"}>
          {load.error ? "Failed" : LOAD_WORDS[load.state]}
        </Pill>
        <span className={styles.soft}>
          {[whichFile(load), bytes, formatEta(load.eta_seconds ?? null)].filter(Boolean).join(" · ")}
        </span>
      </span>
      {load.error ? null : (
        <Progress
          label={`Loading on ${load.node ?? "a node"}`}
          percentage={load.total_bytes > 0 ? load.progress : null}
        />
      )}
      {load.reason ? <span className={styles.soft}>{sentence(load.reason)}</span> : null}
      {load.error ? <InlineError error={load.error} about={load.model} /> : null}
    </li>
  );
}

function Replicas({
  model,
  replicas,
  scheduling,
}: {
  model: Model;
  replicas: readonly Replica[];
  scheduling: Scheduling | undefined;
}) {
  const nameOf = useNodeNames();
  const [leaving, setLeaving] = useState<string | null>(null);
  const sorted = [...replicas].sort((a, b) =>
    nameOf(a.node_id).localeCompare(nameOf(b.node_id), undefined, { numeric: true }),
  );
  return (
    <>
      <ul className={styles.replicas}>
        {sorted.map((replica) => {
          const { word, tone } = REPLICA_WORDS[replica.corral_state];
          const isOld = (replica.config_revision ?? model.revision) !== model.revision;
          return (
            <li key={replica.id} className={styles.replica}>
              <span>
                <Link to="/nodes/$nodeId" params={{ nodeId: replica.node_id }}>
                  {nameOf(replica.node_id)}
                </Link>
                {replica.replica_index > 0 ? ` #${replica.replica_index}` : ""} <Pill tone={tone}>{word}</Pill>{" "}
                {isOld ? <Pill tone="yellow">Old configuration</Pill> : null}
                <span className={styles.facts}>
                  {[
                    `${replica.in_flight} in flight${replica.capacity ? ` of ${replica.capacity}` : ""}`,
                    replica.memory_bytes ? `${formatBytes(replica.memory_bytes)} reserved` : "",
                    replica.last_used === null ? "" : `last used ${formatDateTime(replica.last_used)}`,
                  ]
                    .filter(Boolean)
                    .join(" · ")}
                </span>
                {replica.reason ? <span className={styles.facts}>{sentence(replica.reason)}</span> : null}
                {replica.cleanup_error ? <InlineError error={replica.cleanup_error} /> : null}
              </span>
              <Button
                size="small"
                look="quiet"
                aria-label={`Unload from ${nameOf(replica.node_id)}`}
                onClick={() => setLeaving(replica.node_id)}
              >
                Unload…
              </Button>
            </li>
          );
        })}
      </ul>
      <UnloadOnNodeDialog
        model={model.name}
        scheduling={scheduling}
        replicas={replicas}
        nodeId={leaving}
        onClose={() => setLeaving(null)}
      />
    </>
  );
}

function Decisions({ decisions }: Pick<ModelExplanation, "decisions">) {
  if (decisions.length === 0) return <p className={styles.soft}>No decisions yet: the model has never been loaded.</p>;
  return (
    <ol className={styles.decisions}>
      {decisions.slice(0, 5).map((decision) => (
        <li key={decision.id}>
          <strong>{sentence(decision.cause)}</strong> <span className={styles.soft}>{formatDateTime(decision.at)}</span>
          <ul>
            {decision.candidates.slice(0, 8).map((candidate) => (
              <li key={candidate.node_id} className={styles.soft}>
                {candidate.node}: {candidate.verdict.replaceAll("_", " ")}
                {candidate.reason === "" ? "" : `, ${candidate.reason}`}
              </li>
            ))}
            {decision.others.map(({ verdict, reason, nodes }) => (
              <li key={`${verdict} ${reason}`} className={styles.soft}>
                {plural(nodes, "more node")}: {verdict.replaceAll("_", " ")}
                {reason === "" ? "" : `, ${reason}`}
              </li>
            ))}
          </ul>
        </li>
      ))}
    </ol>
  );
}
