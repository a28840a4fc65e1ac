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
import { Orders } from "./orders";
import { Policies } from "./Policies";
import { useOrder } from "./queries";
import type { BackendsSearch, BackendsTab } from "./search";

const route = getRouteApi("/backends");

export function BackendsPage() {
  const nodes = useQuery(nodeQueries.list());
  const machines = useMemo(
    () =>
      nodes.data
        ?.filter(({ approved, node_type }) => approved && node_type === "backend")
        .sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true })),
    [nodes.data],
  );
  if (machines === undefined) {
    if (nodes.isPending) return <Loading what="nodes" />;
    return (
      <Problem
        title="The nodes could not be read"
        error={nodes.error}
        retrying={nodes.isFetching}
        onRetry={() => void nodes.refetch()}
      />
    );
  }
  return (
    <Orders nodes={machines}>
      <BackendsView machines={machines} />
    </Orders>
  );
}

function BackendsView({ machines }: { machines: readonly SeenNode[] }) {
  const search = route.useSearch();
  const tab = search.tab ?? "installed";
  const navigate = route.useNavigate();
  const show = (change: BackendsSearch, replace = false) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace });
  return (
    <Page
      title="Backends"
      actions={
        tab === "installed" ? <CheckButton /> : tab === "gallery" ? <InstallFromUri nodes={machines} /> : undefined
      }
      toolbar={
        <>
          <Tabs<BackendsTab>
            label="Parts of the backends"
            value={tab}
            onChange={(next) => show({ tab: next, q: "", tag: "" })}
            tabs={[
              { value: "installed", word: "On the nodes" },
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
          machines={machines}
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
          machines={machines}
        />
      ) : (
        <Policies />
      )}
    </Page>
  );
}

interface InstalledProps {
  machines: readonly SeenNode[];
  text: string;
  onGallery: () => void;
  onAll: () => void;
}

function Installed({ machines, text, onGallery, onAll }: InstalledProps) {
  const fleet = useQuery(backendQueries.fleet());
  const upgrades = useQuery(backendQueries.upgrades());
  if (fleet.data === undefined) {
    if (fleet.isPending) return <Loading what="backends" />;
    return (
      <Problem
        title="The backends could not be read"
        error={fleet.error}
        retrying={fleet.isFetching}
        onRetry={() => void fleet.refetch()}
      />
    );
  }
  if (machines.length === 0) {
    return (
      <Empty
        icon="nodes"
        title="No machine to put backends on"
        hint="Add a machine and approve it; then backends can be installed on it."
      >
        <Link to="/nodes" search={{ add: "open" }}>
          Add a machine
        </Link>
      </Empty>
    );
  }
  if (fleet.data.length === 0) {
    return (
      <Empty
        icon="backends"
        title="No backend is installed"
        hint="Backends run models. The gallery shows which build each of your machines would get."
      >
        <Button look="primary" icon="search" onClick={onGallery}>
          Open the gallery
        </Button>
      </Empty>
    );
  }
  const word = text.trim().toLowerCase();
  const byBackend = fleet.data.filter(({ name }) => name.toLowerCase().includes(word));
  const byNode = machines.filter(({ name }) => name.toLowerCase().includes(word));
  const backends = byBackend.length > 0 ? byBackend : fleet.data;
  const nodes = byNode.length > 0 ? byNode : machines;
  if (byBackend.length === 0 && byNode.length === 0) {
    return (
      <Empty
        icon="search"
        title="Nothing matches"
        hint={`Neither a node nor a backend has “${text.trim()}” in its name.`}
      >
        <Button onClick={onAll}>Show all</Button>
      </Empty>
    );
  }
  return (
    <>
      {upgrades.isError && upgrades.data === undefined ? (
        <section className={styles.notice} aria-label="Upgrades">
          <p>
            <strong>Upgrades could not be looked up.</strong> {messageOf(upgrades.error)}
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
  const all = useOrder(async () => {
    const reasons = Object.values((await api.upgradeAll()).refused);
    if (reasons.length > 0) announce.failed("Not everything is upgraded.", reasons.join("; "));
  });
  const found = Object.values(upgrades);
  const names = found
    .filter(({ node_drift }) => node_drift.some(({ rolled_back }) => !rolled_back))
    .map(({ backend_name }) => backend_name);
  if (found.length === 0) return null;
  return (
    <section className={styles.notice} aria-label="Upgrades">
      <div>
        <strong>{plural(found.length, "backend has", "backends have")} an upgrade</strong>
        <ul>
          {found.map((upgrade) => (
            <li key={upgrade.backend_name}>
              {upgrade.backend_name}: {upgrade.installed_version || "the installed build"} →{" "}
              {upgrade.available_version || "a newer build"} on {plural(upgrade.node_drift.length, "node")}
              {heldWords(upgrade)}
            </li>
          ))}
        </ul>
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
          {names.join(", ")}: every node that has them fetches what the galleries offer now, except where an
          administrator went back from it.
        </p>
        <p>
          Running models are restarted on the new version, one after the other. The versions before stay on disk for a
          rollback.
        </p>
      </ConfirmDialog>
    </section>
  );
}

/** Where nobody can tell whether there is something newer, and why. */
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
    <section className={styles.notice} aria-label="Versions that cannot be checked">
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

/** Nodes that "Upgrade all" leaves alone. */
function heldWords({ node_drift }: Upgrades[string]): string {
  const held = node_drift.filter(({ rolled_back }) => rolled_back).map(({ node_name }) => node_name);
  return held.length === 0
    ? ""
    : `, rolled back from it on ${held.join(", ")} and left so until it is upgraded by name`;
}

function CheckButton() {
  const announce = useAnnounce();
  const check = useOrder(async () => {
    await api.refreshGalleries();
    await api.checkUpgrades();
  });
  return (
    <Button
      icon="retry"
      busy={check.isPending}
      onClick={() =>
        check.mutate(undefined, {
          onSuccess: () => announce.done("Galleries and registries are being asked for upgrades."),
          onError: (error) => announce.failed("Upgrades could not be looked for.", messageOf(error)),
        })
      }
    >
      Look for upgrades
    </Button>
  );
}
