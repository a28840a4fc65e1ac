import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate, useParams } from "@tanstack/react-router";
import { useDeferredValue, useMemo, useRef } from "react";
import { Empty, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { cx } from "@/components/cx";
import { useTitle } from "@/components/useTitle";
import { NodeActions } from "./actions";
import { AddNodeDialog } from "./AddNode";
import { NodePanel } from "./NodePanel";
import styles from "./NodesPage.module.css";
import { nodeQueries } from "@/data/nodes";
import { Roster } from "./Roster";
import type { SeenNode } from "@/data/nodes";
import { viewRoster } from "./seenNodes";
import { countByStatus } from "./status";
import { Toolbar } from "./Toolbar";
import { readView, withAllStatuses, withDialog, withSort, withStatusToggled, withText, type NodesSearch } from "./view";

const route = getRouteApi("/nodes");

export function NodesPage() {
  useTitle("Nodes");
  const nodes = useQuery(nodeQueries.list());
  if (nodes.isPending) return <Loading what="nodes" />;
  if (nodes.data === undefined) {
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
    <NodeActions nodes={nodes.data}>
      <NodesView nodes={nodes.data} />
    </NodeActions>
  );
}

function NodesView({ nodes }: { nodes: readonly SeenNode[] }) {
  const scroller = useRef<HTMLDivElement>(null);
  const search = route.useSearch();
  const { nodeId: openId } = useParams({ strict: false });
  const navigate = useNavigate();
  // A typed address contains the name.
  const opened = nodes.find(({ id }) => id === openId) ?? nodes.find(({ name }) => name === openId);

  // Filtering may lag a little behind typing, never the other way round.
  const shownSearch = useDeferredValue(search);
  const view = useMemo(() => readView(shownSearch), [shownSearch]);
  const shown = useMemo(() => viewRoster(nodes, view), [nodes, view]);
  const counts = useMemo(() => countByStatus(nodes), [nodes]);

  const show = (change: (search: NodesSearch) => NodesSearch, { replace = false } = {}) =>
    void navigate({ to: ".", search: (now: NodesSearch) => change(now), replace });
  const open = (id: string) =>
    void navigate({ to: "/nodes/$nodeId", params: { nodeId: id }, search: (now: NodesSearch) => now });

  async function close() {
    await navigate({ to: "/nodes", search: (now: NodesSearch) => now });
    if (opened !== undefined) document.querySelector<HTMLElement>(`[data-node="${CSS.escape(opened.id)}"]`)?.focus();
  }

  const setDialog = (isOpen: boolean) => show((now) => withDialog(now, isOpen));

  return (
    <div className={cx(styles.page, openId !== undefined && styles.withPanel)}>
      <div ref={scroller} className={styles.scroller}>
        <header className={styles.header}>
          <h1>Nodes</h1>
          <Button look="primary" icon="add" onClick={() => setDialog(true)}>
            Add a node
          </Button>
        </header>
        {nodes.length === 0 ? (
          <Empty
            icon="nodes"
            title="No nodes yet"
            hint="Run the join command on a machine, then approve the node here."
          >
            <Button look="primary" icon="add" onClick={() => setDialog(true)}>
              Add a node
            </Button>
          </Empty>
        ) : (
          <>
            <div className={styles.toolbar}>
              <Toolbar
                text={search.q ?? ""}
                onText={(text) => show((now) => withText(now, text), { replace: true })}
                statuses={readView(search).statuses}
                onToggleStatus={(status) => show((now) => withStatusToggled(now, status))}
                onAllStatuses={() => show(withAllStatuses)}
                counts={counts}
                total={nodes.length}
              />
            </div>
            {shown.length === 0 ? (
              <Empty
                icon="search"
                title="No matching nodes"
                hint={`None of ${nodes.length} nodes matches the search and the status.`}
              >
                <Button onClick={() => show((now) => withAllStatuses(withText(now, "")))}>Show all nodes</Button>
              </Empty>
            ) : (
              <Roster
                nodes={shown}
                scroller={scroller}
                selectedId={opened?.id ?? null}
                sort={view.sort}
                descending={view.descending}
                onSort={(sort) => show((now) => withSort(now, sort))}
                onOpen={open}
              />
            )}
          </>
        )}
      </div>
      {openId === undefined ? null : (
        <aside
          className={styles.panel}
          aria-label="Node details"
          onKeyDown={(event) => {
            // Dialogs opened from here are React children of the page, and their Escape is their own.
            if (event.key === "Escape" && event.currentTarget.contains(event.target as Element)) void close();
          }}
        >
          <OpenNode node={opened} onClose={() => void close()} />
        </aside>
      )}
      <AddNodeDialog open={search.add === "open"} onClose={() => setDialog(false)} nodes={nodes} />
    </div>
  );
}

function OpenNode({ node, onClose }: { node: SeenNode | undefined; onClose: () => void }) {
  if (node !== undefined) return <NodePanel node={node} onClose={onClose} />;
  return (
    <Empty
      icon="nodes"
      title="Node not found"
      hint="It was removed, or the address is wrong. A machine that rejoins gets a new entry."
    >
      <Button onClick={onClose}>Back to all nodes</Button>
    </Empty>
  );
}
