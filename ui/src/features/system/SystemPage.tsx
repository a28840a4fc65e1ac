import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { SystemStatus } from "@/api/types";
import { Loading, Problem } from "@/components/Answers";
import { cx } from "@/components/cx";
import { Icon } from "@/components/Icon";
import { Page } from "@/components/Page";
import { systemQueries } from "@/data/system";
import { formatAge } from "@/format/time";
import styles from "./SystemPage.module.css";

export function SystemPage() {
  const status = useQuery(systemQueries.status());
  return (
    <Page title="System">
      {status.isPending ? (
        <Loading what="system status" />
      ) : status.data === undefined ? (
        <Problem
          title="Could not load system status"
          error={status.error}
          retrying={status.isFetching}
          onRetry={() => void status.refetch()}
        />
      ) : (
        <Cards status={status.data} />
      )}
    </Page>
  );
}

function Cards({ status }: { status: SystemStatus }) {
  const { store, bus, frontends } = status;
  return (
    <div className={styles.cards}>
      <Card title="Frontends">
        {frontends.map((frontend) => (
          <dl key={frontend.id}>
            <Fact name="Address">{frontend.url || "unknown"}</Fact>
            <Fact name="Version">{frontend.version}</Fact>
            <Fact name="ID">
              <code>{frontend.id}</code>
              {frontend.id === status.frontend_id ? " (serves this page)" : ""}
            </Fact>
            <Fact name="Last seen">{formatAge(frontend.age_s)}</Fact>
          </dl>
        ))}
      </Card>
      <Card title="Store">
        <dl>
          <Fact name="State">
            <Health ok={store.ok} good="Available" bad="Unavailable" />
          </Fact>
          <Fact name="Kind">{store.kind}</Fact>
          <Fact name="Location">
            <code>{store.location}</code>
          </Fact>
        </dl>
      </Card>
      <Card title="Message bus">
        <dl>
          <Fact name="State">
            <Health ok={bus.connected} good="Connected" bad="Not connected" />
          </Fact>
          <Fact name="Address">
            <code>{bus.url}</code>
          </Fact>
          {bus.problem === "" ? null : <Fact name={bus.connected ? "Last problem" : "Problem"}>{bus.problem}</Fact>}
        </dl>
      </Card>
    </div>
  );
}

function Card({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className={styles.card}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className={styles.fact}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Health({ ok, good, bad }: { ok: boolean; good: string; bad: string }) {
  return (
    <span className={cx(styles.health, ok ? styles.good : styles.bad)}>
      <Icon name={ok ? "approve" : "warning"} size={14} />
      {ok ? good : bad}
    </span>
  );
}
