import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Link,
  type ErrorComponentProps,
} from "@tanstack/react-router";
import { Empty, Loading, Problem } from "@/components/Answers";
import { CodeNotLoaded, late } from "@/components/lateCode";
import { Page } from "@/components/Page";
import { validateChatSearch } from "@/features/chat/search";
import { validateModelsSearch } from "@/features/models/search";
import { NodesPage, validateNodesSearch } from "@/features/nodes";
import { validateAccessSearch } from "@/features/access/search";
import { validateBackendsSearch } from "@/features/backends/search";
import { validateActivitySearch } from "@/features/operations/activitySearch";
import { validateRolloutsSearch } from "@/features/rollouts/search";
import { SessionGuard } from "./SessionGuard";
import { WaitForFrontend } from "./lateCode";

const root = createRootRoute({ component: SessionGuard });

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  component: lazyRouteComponent(
    late(() => import("@/features/overview/OverviewPage")),
    "OverviewPage",
  ),
});

const nodes = createRoute({
  getParentRoute: () => root,
  path: "/nodes",
  component: NodesPage,
  validateSearch: validateNodesSearch,
});
/** The Nodes page shows the node beside the list, so this route has no component. */
const node = createRoute({ getParentRoute: () => nodes, path: "$nodeId" });

const activity = createRoute({
  getParentRoute: () => root,
  path: "/activity",
  validateSearch: validateActivitySearch,
  component: lazyRouteComponent(
    late(() => import("@/features/operations/ActivityPage")),
    "ActivityPage",
  ),
});

const rollouts = createRoute({
  getParentRoute: () => root,
  path: "/rollouts",
  validateSearch: validateRolloutsSearch,
  component: lazyRouteComponent(
    late(() => import("@/features/rollouts/RolloutsPage")),
    "RolloutsPage",
  ),
});
const rollout = createRoute({
  getParentRoute: () => root,
  path: "/rollouts/$rolloutId",
  component: lazyRouteComponent(
    late(() => import("@/features/rollouts/RolloutPage")),
    "RolloutPage",
  ),
});

const backends = createRoute({
  getParentRoute: () => root,
  path: "/backends",
  validateSearch: validateBackendsSearch,
  component: lazyRouteComponent(
    late(() => import("@/features/backends/BackendsPage")),
    "BackendsPage",
  ),
});

const models = createRoute({
  getParentRoute: () => root,
  path: "/models",
  validateSearch: validateModelsSearch,
  component: lazyRouteComponent(
    late(() => import("@/features/models/ModelsPage")),
    "ModelsPage",
  ),
});

const chat = createRoute({
  getParentRoute: () => root,
  path: "/chat",
  validateSearch: validateChatSearch,
  component: lazyRouteComponent(
    late(() => import("@/features/chat/ChatPage")),
    "ChatPage",
  ),
});

const access = createRoute({
  getParentRoute: () => root,
  path: "/access",
  validateSearch: validateAccessSearch,
  component: lazyRouteComponent(
    late(() => import("@/features/access/AccessPage")),
    "AccessPage",
  ),
});

const system = createRoute({
  getParentRoute: () => root,
  path: "/system",
  component: lazyRouteComponent(
    late(() => import("@/features/system/SystemPage")),
    "SystemPage",
  ),
});

function readSearch(text: string): Record<string, string> {
  return Object.fromEntries(new URLSearchParams(text));
}

/** Search values are strings: each page's `validateSearch` keeps no others. */
function writeSearch(search: Record<string, unknown>): string {
  const pairs = Object.entries(search).flatMap(([key, value]) =>
    typeof value === "string" && value !== "" ? [[key, value]] : [],
  );
  const text = new URLSearchParams(pairs).toString();
  return text === "" ? "" : `?${text}`;
}

function PageNotFound() {
  return (
    <Page title="Page not found">
      <Empty
        icon="search"
        title="No page at this address"
        hint="The address may be mistyped, or from another version of Corral."
      >
        <Link to="/">Go to overview</Link>
      </Empty>
    </Page>
  );
}

function BrokenPage({ error, reset }: ErrorComponentProps) {
  return error instanceof CodeNotLoaded ? (
    <WaitForFrontend />
  ) : (
    <Problem title="This page failed to load" error={error} onRetry={reset} />
  );
}

export const router = createRouter({
  routeTree: root.addChildren([
    overview,
    nodes.addChildren([node]),
    backends,
    models,
    chat,
    activity,
    rollouts,
    rollout,
    access,
    system,
  ]),
  // After `#`, because `/models` and `/backends` are paths of the API, and so that Corral can stand below any path.
  history: createHashHistory(),
  parseSearch: readSearch,
  stringifySearch: writeSearch,
  defaultPreload: "intent",
  defaultPendingComponent: () => <Loading what="the page" />,
  defaultNotFoundComponent: PageNotFound,
  defaultErrorComponent: BrokenPage,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
