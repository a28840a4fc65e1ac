import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useDeferredValue, useMemo, useState } from "react";
import { api } from "@/api/client";
import type { AvailableModel, Model, ModelSummary, Replica, Scheduling } from "@/api/types";
import { Empty, Loading, messageOf, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Chip } from "@/components/Chip";
import { GalleryProblems } from "@/components/GalleryProblems";
import { Card, Page } from "@/components/Page";
import { Pill } from "@/components/Pill";
import { SearchField } from "@/components/SearchField";
import { SidePanel } from "@/components/SidePanel";
import { Tabs } from "@/components/Tabs";
import { useAnnounce } from "@/components/Toasts";
import { modelQueries } from "@/data/models";
import { failureCauses, modelState } from "@/data/modelState";
import { useNodeNames } from "@/data/nodes";
import { groupBy } from "@/format/groups";
import { plural } from "@/format/text";
import { AttachDialog } from "./AttachDialog";
import { AddModelDialog } from "./ConfigEditor";
import { ModelPanel } from "./ModelPanel";
import styles from "./ModelsPage.module.css";
import { RouteDialog, Routes } from "./Routes";
import { modelDetailQueries, useModelChange } from "./queries";
import type { ModelsSearch, ModelsTab } from "./search";
import { pendingWords, restWords, schedulingWords } from "./states";

const route = getRouteApi("/models");

export function ModelsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [adding, setAdding] = useState(false);
  const [attaching, setAttaching] = useState(false);
  const [routing, setRouting] = useState(false);
  const models = useQuery(modelQueries.list());
  const routes = useQuery(modelQueries.routes());
  const tab = search.tab ?? "installed";
  const show = (change: Partial<ModelsSearch>, replace = false) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace });
  const text = useDeferredValue(search.q ?? "");
  const opened = models.data?.find(({ name }) => name === search.open);

  return (
    <SidePanel
      label="Model details"
      isOpen={search.open !== undefined && tab === "installed"}
      onClose={() => show({ open: "" })}
      panel={
        opened !== undefined ? (
          <ModelPanel key={opened.name} model={opened} onClose={() => show({ open: "" })} />
        ) : models.isPending ? (
          <Loading what="the model" />
        ) : (
          <Empty icon="models" title="Model not found" hint="It was deleted, or the address is wrong.">
            <Button onClick={() => show({ open: "" })}>Back to all models</Button>
          </Empty>
        )
      }
    >
      <Page
        title="Models"
        actions={
          tab === "routes" ? (
            <Button icon="add" onClick={() => setRouting(true)}>
              Add a route
            </Button>
          ) : (
            <>
              <Button icon="add" onClick={() => setAttaching(true)}>
                Attach a server
              </Button>
              <Button icon="add" onClick={() => setAdding(true)}>
                Add a configuration
              </Button>
            </>
          )
        }
        toolbar={
          <>
            <Tabs<ModelsTab>
              label="Model views"
              value={tab}
              onChange={(next) => show({ tab: next, q: "", open: "" })}
              tabs={[
                { value: "installed", word: "Installed", count: models.data?.length },
                { value: "routes", word: "Routes", count: routes.data?.length },
                { value: "gallery", word: "Gallery" },
              ]}
            />
            <SearchField
              label={tab === "routes" ? "Search routes" : "Search models"}
              placeholder={tab === "routes" ? "Name, model…" : "Name, backend, description…"}
              text={search.q ?? ""}
              onText={(q) => show({ q }, true)}
            />
          </>
        }
      >
        {tab === "gallery" ? (
          <ModelGallery term={text} onInstalled={(name) => show({ tab: "installed", q: "", open: name })} />
        ) : tab === "routes" ? (
          <Routes text={text} />
        ) : models.data === undefined ? (
          models.isPending ? (
            <Loading what="models" />
          ) : (
            <Problem
              title="Could not load models"
              error={models.error}
              retrying={models.isFetching}
              onRetry={() => void models.refetch()}
            />
          )
        ) : models.data.length === 0 ? (
          <Empty
            icon="models"
            title="No models yet"
            hint="Install one from the gallery, or add your own configuration."
          >
            <Button look="primary" icon="search" onClick={() => show({ tab: "gallery" })}>
              Open the gallery
            </Button>
          </Empty>
        ) : (
          <Installed models={models.data} text={text} openName={search.open} onOpen={(name) => show({ open: name })} />
        )}
      </Page>
      <AttachDialog
        open={attaching}
        model=""
        onClose={() => setAttaching(false)}
        onAttached={(name) => show({ tab: "installed", q: "", open: name })}
      />
      <RouteDialog open={routing} route={null} onClose={() => setRouting(false)} />
      <AddModelDialog
        open={adding}
        onClose={() => setAdding(false)}
        onAdded={(name) => show({ tab: "installed", q: "", open: name })}
      />
    </SidePanel>
  );
}

function Installed({
  models,
  text,
  openName,
  onOpen,
}: {
  models: readonly Model[];
  text: string;
  openName: string | undefined;
  onOpen: (name: string) => void;
}) {
  const replicas = useQuery(modelQueries.replicas()).data;
  const scheduling = useQuery(modelQueries.scheduling()).data;
  const summary = useQuery(modelQueries.summary()).data;
  const byModel = useMemo(() => replicas && groupBy(replicas, ({ model_name }) => model_name), [replicas]);
  const schedulingOf = useMemo(() => new Map(scheduling?.map((each) => [each.model_name, each])), [scheduling]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = models.filter((model) =>
    words.every((word) =>
      `${model.name} ${model.backend} ${model.description} ${model.aliases.join(" ")}`.toLowerCase().includes(word),
    ),
  );
  if (found.length === 0)
    return (
      <Empty
        icon="search"
        title="No matching models"
        hint={`None of ${plural(models.length, "model")} matches the search.`}
      />
    );
  return (
    <ul className={styles.models}>
      {found.map((model) => (
        <li key={model.name}>
          <ModelCard
            model={model}
            replicas={byModel && (byModel.get(model.name) ?? [])}
            loads={summary && (summary[model.name]?.loads ?? [])}
            scheduling={schedulingOf.get(model.name)}
            isOpen={model.name === openName}
            onOpen={() => onOpen(model.name)}
          />
        </li>
      ))}
    </ul>
  );
}

interface ModelCardProps {
  model: Model;
  /** Undefined until loaded. */
  replicas: readonly Replica[] | undefined;
  loads: ModelSummary["loads"] | undefined;
  scheduling: Scheduling | undefined;
  isOpen: boolean;
  onOpen: () => void;
}

function ModelCard({ model, replicas: knownReplicas, loads: knownLoads, scheduling, isOpen, onOpen }: ModelCardProps) {
  const nameOf = useNodeNames();
  const state = modelState(knownReplicas, knownLoads);
  const [replicas, loads] = [knownReplicas ?? [], knownLoads ?? []];
  const failed = failureCauses(replicas, loads)[0] ?? "";
  const waits = scheduling?.unsatisfiable_reason ?? loads.find(({ reason }) => reason)?.reason ?? "";
  const problem = restWords(scheduling, state.ready, { waits, failed }) || waits;
  const words =
    model.backend === "attached"
      ? "servers that Corral does not start"
      : schedulingWords(scheduling, state.word === "Unknown" ? undefined : state.ready);
  return (
    <button type="button" className={styles.card} aria-pressed={isOpen} onClick={onOpen}>
      <span className={styles.head}>
        <strong>{model.name}</strong>
        {model.alias_of !== "" ? (
          <Pill tone="violet">Alias of {model.alias_of}</Pill>
        ) : model.disabled ? (
          <Pill tone="grey">Disabled</Pill>
        ) : (
          <Pill tone={state.tone}>{state.label}</Pill>
        )}
        {model.pending === null ? null : <Pill tone="yellow">Change pending</Pill>}
      </span>
      {model.pending === null || model.pending.reason === "" ? null : (
        <span className={styles.problem}>{pendingWords(model.pending)}</span>
      )}
      {state.word === "Failed" && failed !== "" ? (
        <span className={styles.failure} title={failed}>
          {failed}
        </span>
      ) : problem === "" || model.pending !== null ? null : (
        <span className={styles.problem}>{problem}</span>
      )}
      <span className={styles.soft}>
        {model.alias_of !== "" ? `Requests go to ${model.alias_of}` : model.backend || "no backend"}
        {model.alias_of !== "" || problem.startsWith(words) ? "" : ` · ${words}`}
      </span>
      {replicas.length === 0 ? null : (
        <span className={styles.chips}>
          {replicas.slice(0, 8).map((replica) => (
            <Chip key={replica.id}>{nameOf(replica.node_id)}</Chip>
          ))}
          {replicas.length > 8 ? <Chip>+{replicas.length - 8}</Chip> : null}
        </span>
      )}
    </button>
  );
}

function ModelGallery({ term, onInstalled }: { term: string; onInstalled: (name: string) => void }) {
  const available = useQuery(modelDetailQueries.gallery(term));
  if (available.data === undefined) {
    if (available.isPending) return <Loading what="the gallery" />;
    return (
      <Problem
        title="Could not load the gallery"
        error={available.error}
        retrying={available.isFetching}
        onRetry={() => void available.refetch()}
      />
    );
  }
  const { models, total, galleries } = available.data;
  if (total === 0) {
    return (
      <>
        <GalleryProblems galleries={galleries} />
        <Empty
          icon="search"
          title={term === "" ? "No models in the galleries" : "No matching models"}
          hint={term === "" ? "Add your own configuration, or configure another gallery." : "Try other search terms."}
        />
      </>
    );
  }
  return (
    <>
      <GalleryProblems galleries={galleries} />
      <ul className={styles.offers}>
        {models.slice(0, 200).map((model) => (
          <li key={`${model.gallery}@${model.name}`}>
            <OfferCard model={model} onInstalled={onInstalled} />
          </li>
        ))}
      </ul>
      {total > 200 ? <p className={styles.soft}>{total - 200} more match. Refine the search to see them.</p> : null}
    </>
  );
}

function OfferCard({ model, onInstalled }: { model: AvailableModel; onInstalled: (name: string) => void }) {
  const announce = useAnnounce();
  const install = useModelChange(() => api.installModel(`${model.gallery}@${model.name}`, ""));
  return (
    <Card
      title={
        <span className={styles.title}>
          {model.name} {model.installed ? <Pill tone="green">Installed</Pill> : null}
        </span>
      }
      actions={
        model.installed ? (
          <Button size="small" onClick={() => onInstalled(model.name)}>
            Show
          </Button>
        ) : (
          <Button
            size="small"
            icon="add"
            busy={install.isPending}
            aria-label={`Install ${model.name}`}
            onClick={() =>
              install.mutate(undefined, {
                onSuccess: (added) => {
                  announce.done(`Installed ${added.name}. Its files are downloaded when it is first loaded.`);
                  onInstalled(added.name);
                },
                onError: (error) => announce.failed(`Could not install ${model.name}.`, messageOf(error)),
              })
            }
          >
            Install
          </Button>
        )
      }
    >
      <div className={styles.offer}>
        <p>{model.description}</p>
        <p className={styles.soft}>
          {[model.backend, model.size, model.license, `from ${model.gallery}`].filter(Boolean).join(" · ")}
        </p>
        <p className={styles.chips}>
          {model.tags.map((tag) => (
            <Chip key={tag}>{tag}</Chip>
          ))}
        </p>
      </div>
    </Card>
  );
}
