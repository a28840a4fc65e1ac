import { useInfiniteQuery } from "@tanstack/react-query";
import { Empty, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Chip } from "@/components/Chip";
import { Card } from "@/components/Page";
import { formatDateTime } from "@/format/time";
import styles from "./AuditLog.module.css";
import { entryWords } from "./auditWords";
import { accessQueries } from "./queries";

export function AuditLog({ text }: { text: string }) {
  const audit = useInfiniteQuery(accessQueries.audit());
  if (audit.data === undefined) {
    if (audit.isPending) return <Loading what="the audit log" />;
    return (
      <Problem
        title="Could not load the audit log"
        error={audit.error}
        retrying={audit.isFetching}
        onRetry={() => void audit.refetch()}
      />
    );
  }
  const entries = audit.data.pages.flat();
  if (entries.length === 0)
    return (
      <Empty icon="activity" title="No changes yet" hint="Every change and every denied request is recorded here." />
    );
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries.filter((entry) =>
    words.every((word) =>
      `${entry.actor} ${entry.action} ${entry.subject} ${JSON.stringify(entry.detail)} ${Object.values(entry.names).join(" ")}`
        .toLowerCase()
        .includes(word),
    ),
  );
  return (
    <>
      {found.length === 0 ? (
        <Empty
          icon="search"
          title="No matches"
          hint={`None of the ${entries.length} newest entries matches the search. Load older entries below.`}
        />
      ) : (
        <Card>
          <ul>
            {found.map((entry) => {
              const { about, more } = entryWords(entry);
              return (
                <li key={entry.id} className={styles.entry}>
                  <time className={styles.soft}>{formatDateTime(entry.at)}</time>
                  <span>
                    <strong>{entry.actor}</strong> <Chip strong>{entry.action}</Chip>{" "}
                    <span title={entry.subject}>{about}</span>
                    <span className={styles.detail}>{more}</span>
                  </span>
                </li>
              );
            })}
          </ul>
        </Card>
      )}
      {audit.hasNextPage ? (
        <Button busy={audit.isFetchingNextPage} onClick={() => void audit.fetchNextPage()}>
          Load older entries
        </Button>
      ) : null}
    </>
  );
}
