import { useInfiniteQuery } from "@tanstack/react-query";
import { Empty, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Chip } from "@/components/Chip";
import { Card } from "@/components/Page";
import { formatDateTime } from "@/format/time";
import styles from "./AuditLog.module.css";
import { accessQueries } from "./queries";

export function AuditLog({ text }: { text: string }) {
  const audit = useInfiniteQuery(accessQueries.audit());
  if (audit.data === undefined) {
    if (audit.isPending) return <Loading what="the audit log" />;
    return <Problem title="The audit log could not be read" error={audit.error} retrying={audit.isFetching} onRetry={() => void audit.refetch()} />;
  }
  const entries = audit.data.pages.flat();
  if (entries.length === 0) return <Empty icon="activity" title="Nothing was changed yet" hint="Every change, and everyone who was refused, is written here." />;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries.filter((entry) => words.every((word) => `${entry.actor} ${entry.action} ${entry.subject} ${JSON.stringify(entry.detail)} ${Object.values(entry.names).join(" ")}`.toLowerCase().includes(word)));
  return (
    <>
      {found.length === 0 ? (
        <Empty icon="search" title="Nothing matches" hint={`None of the ${entries.length} newest entries has these words. Older ones can be read below.`} />
      ) : (
        <Card>
          <ul>
            {found.map((entry) => (
              <li key={entry.id} className={styles.entry}>
                <time className={styles.soft}>{formatDateTime(entry.at)}</time>
                <span>
                  <strong>{entry.actor}</strong> <Chip strong>{entry.action}</Chip> <span title={entry.subject}>{entry.names[entry.subject] ?? entry.subject}</span>
                  <span className={styles.detail}>{detailWords(entry.detail, entry.names)}</span>
                </span>
              </li>
            ))}
          </ul>
        </Card>
      )}
      {audit.hasNextPage ? (
        <Button busy={audit.isFetchingNextPage} onClick={() => void audit.fetchNextPage()}>
          Read older entries
        </Button>
      ) : null}
    </>
  );
}

type Names = Record<string, string>;

function detailWords(detail: Record<string, unknown>, names: Names): string {
  return Object.entries(detail)
    .map(([key, value]) => [key, valueWords(value, names)])
    .filter(([, words]) => words !== "")
    .map(([key, words]) => `${key}: ${words}`)
    .join(" · ");
}

/** Nodes by name; of a long digest its beginning: enough to know it again. */
function valueWords(value: unknown, names: Names): string {
  if (typeof value === "string") return names[value] ?? (/^[0-9a-f]{40,}$/.test(value) ? value.slice(0, 12) : value);
  if (Array.isArray(value)) return value.map((each) => valueWords(each, names)).join(", ");
  if (typeof value !== "object" || value === null) return String(value ?? "");
  return Object.entries(value)
    .map(([key, each]) => `${key}=${valueWords(each, names)}`)
    .join(", ");
}
