export { NodesPage } from "./NodesPage";
export { validateNodesSearch } from "./view";
