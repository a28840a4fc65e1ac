import { useMemo, useState } from "react";
import type { Target } from "@/api/types";
import { Choice } from "@/components/Choice";
import { StatusPill } from "@/components/StatusPill";
import { TextField } from "@/components/TextField";
import type { SeenNode } from "@/data/nodes";
import { fitsSelector, parseSelector } from "@/format/selector";
import { plural } from "@/format/text";
import styles from "./TargetPicker.module.css";

export type TargetKind = "all" | "selector" | "nodes";

export interface TargetDraft {
  kind: TargetKind;
  selector: string;
  nodes: ReadonlySet<string>;
}

export const EVERYWHERE: TargetDraft = { kind: "all", selector: "", nodes: new Set() };

export const onNodes = (...ids: string[]): TargetDraft => ({ kind: "nodes", selector: "", nodes: new Set(ids) });

/** The target to send, or the error in the draft. */
export function readTarget(draft: TargetDraft): Target | string {
  if (draft.kind === "all") return {};
  if (draft.kind === "nodes") return draft.nodes.size === 0 ? "Select at least one node" : { nodes: [...draft.nodes] };
  const selector = parseSelector(draft.selector);
  return typeof selector === "string" ? selector : { selector };
}

/** People search a longer list instead of reading it. */
const MOST_LISTED = 100;

interface TargetPickerProps {
  nodes: readonly SeenNode[];
  draft: TargetDraft;
  onChange: (draft: TargetDraft) => void;
  /** What “all nodes” means for this operation. */
  all: string;
  later: boolean;
}

export function TargetPicker({ nodes, draft, onChange, all, later }: TargetPickerProps) {
  const selector = parseSelector(draft.selector);
  const matching =
    typeof selector === "string" ? null : nodes.filter((node) => fitsSelector(node.labels, selector)).length;
  return (
    <div className={styles.picker}>
      <Choice<TargetKind>
        label="Where"
        value={draft.kind}
        onChange={(kind) => onChange({ ...draft, kind })}
        options={[
          { value: "all", word: all, ...(later ? { hint: "Includes nodes that join later." } : {}) },
          {
            value: "selector",
            word: "Nodes with labels",
            ...(later ? { hint: "Includes nodes that get the labels later." } : {}),
          },
          { value: "nodes", word: "Selected nodes" },
        ]}
      />
      {draft.kind === "selector" ? (
        <TextField
          label="Labels"
          placeholder="tier=fast, rack=7"
          autoCapitalize="none"
          spellCheck={false}
          value={draft.selector}
          onChange={(event) => onChange({ ...draft, selector: event.target.value })}
          hint={
            draft.selector === "" || matching === null
              ? "A node must have all of these labels."
              : `${plural(matching, "node matches", "nodes match")} now.`
          }
        />
      ) : null}
      {draft.kind === "nodes" ? (
        <NodeList nodes={nodes} chosen={draft.nodes} onChange={(chosen) => onChange({ ...draft, nodes: chosen })} />
      ) : null}
    </div>
  );
}

function NodeList({
  nodes,
  chosen,
  onChange,
}: {
  nodes: readonly SeenNode[];
  chosen: ReadonlySet<string>;
  onChange: (chosen: ReadonlySet<string>) => void;
}) {
  const [text, setText] = useState("");
  const found = useMemo(
    () =>
      nodes
        .filter(({ name }) => name.toLowerCase().includes(text.trim().toLowerCase()))
        .sort(
          (a, b) =>
            Number(chosen.has(b.id)) - Number(chosen.has(a.id)) ||
            a.name.localeCompare(b.name, undefined, { numeric: true }),
        ),
    // Selected nodes come first when the list is opened or searched, and do not jump while one is ticked.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [nodes, text],
  );
  function toggle(id: string) {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChange(next);
  }
  return (
    <div className={styles.nodes}>
      {nodes.length > 8 ? (
        <TextField label="Find a node" value={text} onChange={(event) => setText(event.target.value)} />
      ) : null}
      <ul className={styles.list}>
        {found.slice(0, MOST_LISTED).map((node) => (
          <li key={node.id}>
            <label className={styles.node}>
              <input type="checkbox" checked={chosen.has(node.id)} onChange={() => toggle(node.id)} />
              <span className={styles.name}>{node.name}</span>
              {node.state === "healthy" ? null : <StatusPill status={node.state} />}
            </label>
          </li>
        ))}
      </ul>
      <p className={styles.soft}>
        {plural(chosen.size, "node")} selected
        {found.length > MOST_LISTED ? `; type to find ${found.length - MOST_LISTED} more` : ""}.
      </p>
    </div>
  );
}
