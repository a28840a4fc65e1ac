export { createNodesListener } from "./live";
export { NodesPage } from "./NodesPage";
export { nodeQueries } from "./queries";
export { validateNodesSearch } from "./view";
