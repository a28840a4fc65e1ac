import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api } from "@/api/client";
import type { FleetBackend, Upgrades } from "@/api/types";
import { Empty, Loading, messageOf, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Page } from "@/components/Page";
import { SearchField } from "@/components/SearchField";
import { Tabs } from "@/components/Tabs";
import { useAnnounce } from "@/components/Toasts";
import { backendQueries } from "@/data/backends";
import { nodeQueries, type SeenNode } from "@/data/nodes";
import { plural } from "@/format/text";
import styles from "./BackendsPage.module.css";
import { Gallery } from "./Gallery";
import { InstallFromUri } from "./InstallFromUri";
import { Matrix } from "./Matrix";
import { OperationDialog } from "./operationDialog";
import { Policies } from "./Policies";
import { useBackendMutation } from "./queries";
import type { BackendsSearch, BackendsTab } from "./search";

const route = getRouteApi("/backends");

export function BackendsPage() {
  const nodes = useQuery(nodeQueries.list());
  const backendNodes = useMemo(
    () =>
      nodes.data
        ?.filter(({ approved, node_type }) => approved && node_type === "backend")
        .sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true })),
    [nodes.data],
  );
  if (backendNodes === undefined) {
    if (nodes.isPending) return <Loading what="nodes" />;
    return (
      <Problem
        title="Could not load nodes"
        error={nodes.error}
        retrying={nodes.isFetching}
        onRetry={() => void nodes.refetch()}
      />
    );
  }
  return (
    <OperationDialog nodes={backendNodes}>
      <BackendsView backendNodes={backendNodes} />
    </OperationDialog>
  );
}

function BackendsView({ backendNodes }: { backendNodes: readonly SeenNode[] }) {
  const search = route.useSearch();
  const tab = search.tab ?? "installed";
  const navigate = route.useNavigate();
  const show = (change: BackendsSearch, replace = false) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace });
  return (
    <Page
      title="Backends"
      actions={
        tab === "installed" ? <CheckButton /> : tab === "gallery" ? <InstallFromUri nodes={backendNodes} /> : undefined
      }
      toolbar={
        <>
          <Tabs<BackendsTab>
            label="Backend views"
            value={tab}
            onChange={(next) => show({ tab: next, q: "", tag: "" })}
            tabs={[
              { value: "installed", word: "Installed" },
              { value: "gallery", word: "Gallery" },
              { value: "policies", word: "Policies" },
            ]}
          />
          {tab === "policies" ? null : (
            <SearchField
              label={tab === "gallery" ? "Search the gallery" : "Search nodes and backends"}
              placeholder={tab === "gallery" ? "Name, description, tag…" : "Node or backend…"}
              text={search.q ?? ""}
              onText={(q) => show({ q }, true)}
            />
          )}
        </>
      }
    >
      {tab === "installed" ? (
        <Installed
          backendNodes={backendNodes}
          text={search.q ?? ""}
          onGallery={() => show({ tab: "gallery", q: "" })}
          onAll={() => show({ q: "" })}
        />
      ) : tab === "gallery" ? (
        <Gallery
          text={search.q ?? ""}
          tag={search.tag ?? ""}
          everything={search.all === "yes"}
          onChange={(change) => show(change)}
          backendNodes={backendNodes}
        />
      ) : (
        <Policies />
      )}
    </Page>
  );
}

interface InstalledProps {
  backendNodes: readonly SeenNode[];
  text: string;
  onGallery: () => void;
  onAll: () => void;
}

function Installed({ backendNodes, text, onGallery, onAll }: InstalledProps) {
  const fleet = useQuery(backendQueries.fleet());
  const upgrades = useQuery(backendQueries.upgrades());
  if (fleet.data === undefined) {
    if (fleet.isPending) return <Loading what="backends" />;
    return (
      <Problem
        title="Could not load backends"
        error={fleet.error}
        retrying={fleet.isFetching}
        onRetry={() => void fleet.refetch()}
      />
    );
  }
  if (backendNodes.length === 0) {
    return (
      <Empty icon="nodes" title="No nodes to install backends on" hint="Add a node and approve it first.">
        <Link to="/nodes" search={{ add: "open" }}>
          Add a node
        </Link>
      </Empty>
    );
  }
  if (fleet.data.length === 0) {
    return (
      <Empty
        icon="backends"
        title="No backends installed"
        hint="Backends run models. The gallery shows which build each node would get."
      >
        <Button look="primary" icon="search" onClick={onGallery}>
          Open the gallery
        </Button>
      </Empty>
    );
  }
  const word = text.trim().toLowerCase();
  const byBackend = fleet.data.filter(({ name }) => name.toLowerCase().includes(word));
  const byNode = backendNodes.filter(({ name }) => name.toLowerCase().includes(word));
  const backends = byBackend.length > 0 ? byBackend : fleet.data;
  const nodes = byNode.length > 0 ? byNode : backendNodes;
  if (byBackend.length === 0 && byNode.length === 0) {
    return (
      <Empty icon="search" title="No matches" hint={`No node or backend name contains “${text.trim()}”.`}>
        <Button onClick={onAll}>Show all</Button>
      </Empty>
    );
  }
  return (
    <>
      {upgrades.isError && upgrades.data === undefined ? (
        <section className={styles.notice} aria-label="Upgrades">
          <p>
            <strong>Could not check for upgrades.</strong> {messageOf(upgrades.error)}
          </p>
          <Button icon="retry" busy={upgrades.isFetching} onClick={() => void upgrades.refetch()}>
            Try again
          </Button>
        </section>
      ) : (
        <UpgradeNotice upgrades={upgrades.data ?? {}} />
      )}
      <UncheckedNotice backends={fleet.data} />
      <Matrix nodes={nodes} backends={backends} upgrades={upgrades.data ?? {}} />
    </>
  );
}

function UpgradeNotice({ upgrades }: { upgrades: Upgrades }) {
  const [asking, setAsking] = useState(false);
  const announce = useAnnounce();
  const all = useBackendMutation(async () => {
    const reasons = Object.values((await api.upgradeAll()).refused);
    if (reasons.length > 0) announce.failed("Some backends were not upgraded.", reasons.join("; "));
  });
  const found = Object.values(upgrades);
  const names = found
    .filter(({ node_drift }) => node_drift.some((node) => skippedWhy(node) === ""))
    .map(({ backend_name }) => backend_name);
  const held = found.filter(({ held_back }) => held_back !== "");
  const newer = found.filter(({ held_back }) => held_back === "");
  if (found.length === 0) return null;
  return (
    <section className={styles.notice} aria-label="Upgrades">
      <div>
        {newer.length === 0 ? null : (
          <strong>{plural(newer.length, "backend can be upgraded", "backends can be upgraded")}</strong>
        )}
        <ul>
          {newer.map((upgrade) => (
            <li key={upgrade.backend_name}>
              {upgrade.backend_name}: {upgrade.installed_version || "the installed build"} →{" "}
              {upgrade.available_version || "a newer build"} on {plural(upgrade.node_drift.length, "node")}
              {heldWords(upgrade)}
            </li>
          ))}
        </ul>
        {held.length === 0 ? null : (
          <>
            <strong>{plural(held.length, "newer version is held back", "newer versions are held back")}</strong>
            <ul>
              {held.map((upgrade) => (
                <li key={upgrade.backend_name}>
                  {upgrade.backend_name} {upgrade.available_version}: {upgrade.held_back}{" "}
                  <Link to="/rollouts" search={{ q: upgrade.backend_name }}>
                    View
                  </Link>
                </li>
              ))}
            </ul>
          </>
        )}
      </div>
      {names.length === 0 ? null : (
        <Button look="primary" icon="upgrade" onClick={() => setAsking(true)}>
          Upgrade all
        </Button>
      )}
      <ConfirmDialog
        open={asking}
        onClose={() => setAsking(false)}
        title={`Upgrade ${plural(names.length, "backend")}?`}
        action="Upgrade all"
        busy={all.isPending}
        error={all.error}
        onConfirm={() => all.mutate(undefined, { onSuccess: () => setAsking(false) })}
      >
        <p>
          {names.join(", ")}: each node with these backends downloads the version that the galleries offer now. Nodes
          where the version is pinned or held back are skipped. More than three nodes change in waves.
        </p>
        <p>
          Running models are restarted on the new version, one after another. The previous versions stay on disk for a
          rollback.
        </p>
      </ConfirmDialog>
    </section>
  );
}

/** Backends that cannot be checked for upgrades, and why. */
function UncheckedNotice({ backends }: { backends: readonly FleetBackend[] }) {
  const reasons = backends.flatMap(({ name, nodes }) => {
    const byReason = new Map<string, string[]>();
    for (const { node_name, unchecked } of nodes) {
      if (unchecked !== "") byReason.set(unchecked, [...(byReason.get(unchecked) ?? []), node_name]);
    }
    return [...byReason].map(([reason, on]) => ({ name, reason, on }));
  });
  if (reasons.length === 0) return null;
  return (
    <section className={styles.notice} aria-label="Backends that cannot be checked for upgrades">
      <div>
        <strong>
          {plural(new Set(reasons.map(({ name }) => name)).size, "backend")} cannot be checked for upgrades
        </strong>
        <ul>
          {reasons.map(({ name, reason, on }) => (
            <li key={`${name} ${reason}`}>
              {name} on {on.length > 3 ? plural(on.length, "node") : on.join(", ")}: {reason}
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}

/** Why "Upgrade all" skips a node; empty if it does not. */
const skippedWhy = ({ pinned, held_back, rolling_out }: Upgrades[string]["node_drift"][number]) =>
  pinned || held_back || rolling_out;

/** Nodes that "Upgrade all" skips. */
function heldWords({ node_drift }: Upgrades[string]): string {
  const reasons = new Map<string, string[]>();
  for (const node of node_drift) {
    const reason = skippedWhy(node);
    if (reason !== "") reasons.set(reason, [...(reasons.get(reason) ?? []), node.node_name]);
  }
  return [...reasons]
    .map(([reason, on]) => `; ${on.length > 3 ? plural(on.length, "node") : on.join(", ")}: ${reason}`)
    .join("");
}

function CheckButton() {
  const announce = useAnnounce();
  const check = useBackendMutation(async () => {
    await api.refreshGalleries();
    await api.checkUpgrades();
  });
  return (
    <Button
      icon="retry"
      busy={check.isPending}
      onClick={() =>
        check.mutate(undefined, {
          onSuccess: () => announce.done("Checking galleries and registries for upgrades."),
          onError: (error) => announce.failed("Could not check for upgrades.", messageOf(error)),
        })
      }
    >
      Check for upgrades
    </Button>
  );
}
