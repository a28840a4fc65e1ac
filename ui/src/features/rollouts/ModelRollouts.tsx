import { Link } from "@tanstack/react-router";
import type { ModelRollout } from "@/api/types";
import { Empty } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Card } from "@/components/Page";
import { Pill, type Tone } from "@/components/Pill";
import { closed, plural } from "@/format/text";
import { formatDateTime } from "@/format/time";
import styles from "./RolloutsPage.module.css";

const PILLS: Record<ModelRollout["state"], { word: string; tone: Tone }> = {
  proving: { word: "Proving", tone: "blue" },
  replacing: { word: "Replacing replicas", tone: "blue" },
  completed: { word: "Completed", tone: "green" },
  failed: { word: "Failed", tone: "red" },
  discarded: { word: "Discarded", tone: "grey" },
};

/** Edits of model configurations: each is proven on one replica before it replaces the one that serves. */
export function ModelRollouts({
  revisions,
  text,
  onAll,
}: {
  revisions: readonly ModelRollout[];
  text: string;
  onAll: () => void;
}) {
  if (revisions.length === 0) {
    return (
      <Empty
        icon="models"
        title="No model was edited yet"
        hint="An edited model is loaded once and proven before it replaces the configuration that serves."
      >
        <Link to="/models">Open models</Link>
      </Empty>
    );
  }
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = revisions.filter(({ model, actor, comment, summary }) =>
    words.every((word) => `${model} ${actor} ${comment} ${summary}`.toLowerCase().includes(word)),
  );
  if (found.length === 0) {
    return (
      <Empty
        icon="search"
        title="No matches"
        hint={`None of ${plural(revisions.length, "change")} matches the filter.`}
      >
        <Button onClick={onAll}>Show all</Button>
      </Empty>
    );
  }
  return (
    <Card>
      <ul aria-label="Model configurations">
        {found.map((revision) => {
          const pill = PILLS[revision.state];
          return (
            <li key={`${revision.model} ${revision.number}`} className={styles.revision}>
              <span className={styles.title}>
                <Link to="/models" search={{ open: revision.model }}>
                  {revision.model}
                </Link>
                <span className={styles.versions}>
                  revision {revision.previous} → {revision.number}
                </span>
                <Pill tone={pill.tone}>{pill.word}</Pill>
              </span>
              <p className={styles.summary}>{closed(revision.summary)}</p>
              <p className={styles.meta}>
                {revision.comment === "" ? "" : `${revision.comment} · `}
                {formatDateTime(revision.created_at)} by {revision.actor}
              </p>
            </li>
          );
        })}
      </ul>
    </Card>
  );
}
