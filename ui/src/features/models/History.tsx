import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import type { Model, Revision } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { PanelSection, QueryResult } from "@/components/PanelParts";
import { Pill } from "@/components/Pill";
import { useAnnounce } from "@/components/Toasts";
import { sentence, stopped } from "@/format/text";
import { formatDateTime } from "@/format/time";
import styles from "./ModelPanel.module.css";
import { modelDetailQueries, useModelChange } from "./queries";
import { changeLines, REVISION_WORDS } from "./states";

const SHOWN_FIRST = 5;

/** The revisions of a model, newest first, with what each changed and a way back. */
export function History({ model }: { model: Model }) {
  const revisions = useQuery({ ...modelDetailQueries.revisions(model.name), refetchInterval: 10_000 });
  const [isAll, setAll] = useState(false);
  const [target, setTarget] = useState<Revision | null>(null);
  return (
    <PanelSection title="History">
      <QueryResult query={revisions}>
        {(all) => (
          <>
            <ul className={styles.revisions} aria-label="Revisions">
              {(isAll ? all : all.slice(0, SHOWN_FIRST)).map((revision) => (
                <RevisionRow key={revision.number} model={model} revision={revision} onRollback={setTarget} />
              ))}
            </ul>
            {all.length > SHOWN_FIRST && !isAll ? (
              <Button size="small" look="quiet" onClick={() => setAll(true)}>
                Show all {all.length} revisions
              </Button>
            ) : null}
          </>
        )}
      </QueryResult>
      <RollbackDialog model={model} target={target} onClose={() => setTarget(null)} />
    </PanelSection>
  );
}

interface RowProps {
  model: Model;
  revision: Revision;
  onRollback: (revision: Revision) => void;
}

function RevisionRow({ model, revision, onRollback }: RowProps) {
  const { word, tone } = REVISION_WORDS[revision.state];
  const [isOpen, setOpen] = useState(false);
  const isNewest = revision.number === model.number;
  return (
    <li className={styles.revision}>
      <span>
        <strong>Revision {revision.number}</strong> <Pill tone={tone}>{word}</Pill>
        <span className={styles.facts}>
          {formatDateTime(revision.at)}, by {revision.actor}
          {revision.comment === "" ? "" : ` · ${revision.comment}`}
        </span>
        {revision.reason === "" ? null : <span className={styles.facts}>{stopped(sentence(revision.reason))}</span>}
        {revision.config === "" ? null : (
          <details className={styles.changes} onToggle={(event) => setOpen(event.currentTarget.open)}>
            <summary>Changes of revision {revision.number}</summary>
            {isOpen ? <Changes model={model.name} number={revision.number} /> : null}
          </details>
        )}
      </span>
      {isNewest || revision.config === "" ? null : (
        <Button
          size="small"
          look="quiet"
          aria-label={`Roll back to revision ${revision.number}`}
          onClick={() => onRollback(revision)}
        >
          Roll back…
        </Button>
      )}
    </li>
  );
}

function Changes({ model, number }: { model: string; number: number }) {
  const found = useQuery(modelDetailQueries.changes(model, number));
  return (
    <QueryResult query={found}>
      {({ against, changes }) =>
        changes.length === 0 ? (
          <p className={styles.soft}>No field differs from revision {against}.</p>
        ) : (
          <>
            <p className={styles.soft}>
              {against === null ? "There is no earlier revision. Its fields:" : `Since revision ${against}:`}
            </p>
            <pre tabIndex={0}>{changeLines(changes)}</pre>
          </>
        )
      }
    </QueryResult>
  );
}

function RollbackDialog({ model, target, onClose }: { model: Model; target: Revision | null; onClose: () => void }) {
  const announce = useAnnounce();
  const rollback = useModelChange((to: number) => api.rollbackModel(model.name, model.revision, to));
  return (
    <ConfirmDialog
      open={target !== null}
      onClose={onClose}
      title={`Roll ${model.name} back to revision ${target?.number ?? ""}?`}
      action="Roll back"
      busy={rollback.isPending}
      error={rollback.error}
      onConfirm={() => {
        if (target === null) return;
        rollback.mutate(target.number, {
          onSuccess: () => {
            announce.done(`${model.name} goes back to revision ${target.number}.`);
            onClose();
          },
        });
      }}
    >
      <p>
        {model.pending !== null && target?.number === model.pending.serving_number
          ? `Revision ${model.pending.number} is discarded. Revision ${target.number} keeps serving.`
          : "Its configuration becomes a new revision. Existing replicas keep serving until a replica with it answers."}
      </p>
    </ConfirmDialog>
  );
}
