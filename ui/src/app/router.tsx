import { createHashHistory, createRootRoute, createRoute, createRouter, Link, redirect, type ErrorComponentProps } from "@tanstack/react-router";
import { Empty, Problem } from "@/components/Answers";
import { NodesPage, validateNodesSearch } from "@/features/nodes";
import { SystemPage } from "@/features/system/SystemPage";
import { Gate } from "./Gate";

const root = createRootRoute({ component: Gate });

const start = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/nodes", replace: true });
  },
});

const nodes = createRoute({ getParentRoute: () => root, path: "/nodes", component: NodesPage, validateSearch: validateNodesSearch });
/** The page shows the node beside the roster, so the route adds nothing but its name in the address. */
const node = createRoute({ getParentRoute: () => nodes, path: "$nodeId" });

const system = createRoute({ getParentRoute: () => root, path: "/system", component: SystemPage });

function readSearch(text: string): Record<string, string> {
  return Object.fromEntries(new URLSearchParams(text));
}

function writeSearch(search: Record<string, unknown>): string {
  const pairs = Object.entries(search).flatMap(([key, value]) => (value === undefined ? [] : [[key, String(value)]]));
  const text = new URLSearchParams(pairs).toString();
  return text === "" ? "" : `?${text}`;
}

function NoSuchPage() {
  return (
    <Empty icon="search" title="There is no such page" hint="The address may be mistyped, or from another version of Corral.">
      <Link to="/nodes">Go to the nodes</Link>
    </Empty>
  );
}

function BrokenPage({ error, reset }: ErrorComponentProps) {
  return <Problem title="This page failed" error={error} onRetry={reset} />;
}

export const router = createRouter({
  routeTree: root.addChildren([start, nodes.addChildren([node]), system]),
  // After `#`, because `/models` and `/backends` are paths of the API, and so that Corral can stand below any path.
  history: createHashHistory(),
  parseSearch: readSearch,
  stringifySearch: writeSearch,
  defaultNotFoundComponent: NoSuchPage,
  defaultErrorComponent: BrokenPage,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
