/** The API's objects by the names the UI uses. Byte fields are null when unknown, which is not zero. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Node = Schemas["NodeView"];
export type NodeStatus = Schemas["NodeStatus"];
export type Gpu = Schemas["GpuView"];
export type Session = Schemas["SessionView"];
export type JoinCommand = Schemas["JoinCommand"];
export type SystemStatus = Schemas["StatusView"];

/** The data of a `nodes` event; OpenAPI does not describe what an event stream carries. */
export interface NodesEvent {
  changed: Node[];
  removed: string[];
}
