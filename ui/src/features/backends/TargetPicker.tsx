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

/** What to send, or what is wrong with the draft. */
export function readTarget(draft: TargetDraft): Target | string {
  if (draft.kind === "all") return {};
  if (draft.kind === "nodes") return draft.nodes.size === 0 ? "Choose at least one node" : { nodes: [...draft.nodes] };
  const selector = parseSelector(draft.selector);
  return typeof selector === "string" ? selector : { selector };
}

/** A list longer than this is searched, not read. */
const MOST_LISTED = 100;

interface TargetPickerProps {
  nodes: readonly SeenNode[];
  draft: TargetDraft;
  onChange: (draft: TargetDraft) => void;
  /** What “all nodes” means for this order. */
  all: string;
  later: boolean;
}

export function TargetPicker({ nodes, draft, onChange, all, later }: TargetPickerProps) {
  const selector = parseSelector(draft.selector);
  const fitting =
    typeof selector === "string" ? null : nodes.filter((node) => fitsSelector(node.labels, selector)).length;
  return (
    <div className={styles.picker}>
      <Choice<TargetKind>
        label="Where"
        value={draft.kind}
        onChange={(kind) => onChange({ ...draft, kind })}
        options={[
          { value: "all", word: all, ...(later ? { hint: "Machines that join later get it too." } : {}) },
          {
            value: "selector",
            word: "Nodes with certain labels",
            ...(later ? { hint: "Also those that get the labels later." } : {}),
          },
          { value: "nodes", word: "These nodes only" },
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
            draft.selector === "" || fitting === null
              ? "A node must have all of them."
              : `${plural(fitting, "node fits", "nodes fit")} now.`
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
    // The chosen ones come first when the list is opened or searched, and do not jump while one is ticked.
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
        {plural(chosen.size, "node")} chosen
        {found.length > MOST_LISTED ? `; ${found.length - MOST_LISTED} more are found by typing` : ""}.
      </p>
    </div>
  );
}
