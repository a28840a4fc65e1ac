import { useQuery } from "@tanstack/react-query";
import { Loading, Problem } from "@/components/Answers";
import { useTitle } from "@/components/useTitle";
import { systemQueries } from "./queries";
import styles from "./SystemPage.module.css";
import { factsOf } from "./facts";

export function SystemPage() {
  useTitle("System");
  const status = useQuery(systemQueries.status());
  return (
    <div className={styles.page}>
      <h1>System</h1>
      {status.isPending ? (
        <Loading what="the system's state" />
      ) : status.data === undefined ? (
        <Problem
          title="The system's state could not be read"
          error={status.error}
          retrying={status.isFetching}
          onRetry={() => void status.refetch()}
        />
      ) : (
        <div className={styles.cards}>
          <Card title="Frontend" facts={[["Version", status.data.version], ["Frontend id", status.data.frontend_id]]} />
          <Card title="Store" facts={factsOf(status.data.store)} />
          <Card title="Bus" facts={factsOf(status.data.bus)} />
        </div>
      )}
    </div>
  );
}

function Card({ title, facts }: { title: string; facts: readonly (readonly [string, string])[] }) {
  return (
    <section className={styles.card}>
      <h2>{title}</h2>
      <dl>
        {facts.map(([name, value]) => (
          <div key={name} className={styles.fact}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
