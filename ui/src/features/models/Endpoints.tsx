import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import type { Endpoint, Model } from "@/api/types";
import { Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { PanelSection } from "@/components/PanelParts";
import { Pill } from "@/components/Pill";
import { useAnnounce } from "@/components/Toasts";
import { plural, sentence } from "@/format/text";
import { AttachDialog } from "./AttachDialog";
import styles from "./ModelPanel.module.css";
import { modelDetailQueries, useModelChange } from "./queries";

/** Servers that already run and serve the model as its replicas do. */
export function Endpoints({ model }: { model: Model }) {
  const read = useQuery(modelDetailQueries.endpoints(model.name));
  const [attaching, setAttaching] = useState(false);
  const [editing, setEditing] = useState<Endpoint | null>(null);
  const [detaching, setDetaching] = useState<Endpoint | null>(null);
  const announce = useAnnounce();
  const detach = useModelChange((endpoint: Endpoint) => api.detachEndpoint(model.name, endpoint.id));
  const found = read.data ?? [];
  return (
    <PanelSection title={found.length === 0 ? "Attached endpoints" : `Attached endpoints (${found.length})`}>
      {read.isPending ? (
        <Loading what="endpoints" />
      ) : read.data === undefined ? (
        <Problem
          title="Could not load endpoints"
          error={read.error}
          retrying={read.isFetching}
          onRetry={() => void read.refetch()}
        />
      ) : found.length === 0 ? (
        <p className={styles.soft}>None. Attach a server that already runs, and it serves the model too.</p>
      ) : (
        <ul className={styles.replicas}>
          {found.map((endpoint) => (
            <li key={endpoint.id} className={styles.replica}>
              <span>
                <code>{endpoint.url}</code> <HealthPill endpoint={endpoint} />
                <span className={styles.facts}>{endpointFacts(endpoint)}</span>
                {endpoint.reason === "" ? null : <span className={styles.facts}>{sentence(endpoint.reason)}</span>}
              </span>
              {endpoint.state === "draining" ? null : (
                <span className={styles.actions}>
                  <Button
                    size="small"
                    look="quiet"
                    aria-label={`Edit ${endpoint.url}`}
                    onClick={() => setEditing(endpoint)}
                  >
                    Edit…
                  </Button>
                  <Button
                    size="small"
                    look="quiet"
                    aria-label={`Detach ${endpoint.url}`}
                    onClick={() => setDetaching(endpoint)}
                  >
                    Detach…
                  </Button>
                </span>
              )}
            </li>
          ))}
        </ul>
      )}
      <Button size="small" icon="add" onClick={() => setAttaching(true)}>
        Attach a server…
      </Button>
      <AttachDialog open={attaching} model={model.name} onClose={() => setAttaching(false)} />
      <AttachDialog
        open={editing !== null}
        model={model.name}
        endpoint={editing ?? undefined}
        onClose={() => setEditing(null)}
      />
      <ConfirmDialog
        open={detaching !== null}
        onClose={() => setDetaching(null)}
        title={`Detach ${detaching?.url ?? ""}?`}
        action="Detach"
        busy={detach.isPending}
        error={detach.error}
        onConfirm={() =>
          detaching !== null &&
          detach.mutate(detaching, {
            onSuccess: () => {
              announce.done(`Detached ${detaching.url}.`);
              setDetaching(null);
            },
          })
        }
      >
        <p>
          It gets no new requests.{" "}
          {detaching === null || detaching.in_flight === 0
            ? "The server itself keeps running."
            : `${plural(detaching.in_flight, "open request is", "open requests are")} finished first.`}
        </p>
      </ConfirmDialog>
    </PanelSection>
  );
}

function HealthPill({ endpoint }: { endpoint: Endpoint }) {
  if (endpoint.state === "draining") return <Pill tone="violet">Draining</Pill>;
  return endpoint.health === "healthy" ? <Pill tone="green">Healthy</Pill> : <Pill tone="red">Unhealthy</Pill>;
}

function endpointFacts(endpoint: Endpoint): string {
  return [
    endpoint.upstream_model === "" ? "" : `as ${endpoint.upstream_model}`,
    endpoint.protocol === "openai" ? "" : endpoint.protocol,
    endpoint.endpoints.length === 0 ? "" : `has ${endpoint.endpoints.join(", ")}`,
    endpoint.continuation === "" ? "" : "continues answers",
    `${endpoint.in_flight} in flight of ${endpoint.limit}`,
    endpoint.weight === 1 ? "" : `weight ${endpoint.weight}`,
    endpoint.has_key ? "with a key" : "",
    endpoint.has_ca || endpoint.pin !== "" ? "certificate checked" : "",
  ]
    .filter(Boolean)
    .join(" · ");
}
