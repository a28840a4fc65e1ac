import type { Node } from "@/api/types";
import { Chip } from "@/components/Chip";

/** Labels that every worker sets and other columns already show; the panel lists all labels. */
const SHOWN_ELSEWHERE = /^(gpu|node)\./;

/** The first labels; those set by operators come first. */
export function LabelChips({ node, most }: { node: Node; most: number }) {
  const isOperators = (key: string) => key in node.operator_labels;
  const labels = Object.entries(node.labels)
    .filter(([key]) => isOperators(key) || !SHOWN_ELSEWHERE.test(key))
    .sort(([a], [b]) => Number(isOperators(b)) - Number(isOperators(a)) || a.localeCompare(b));
  if (labels.length === 0) return null;
  const rest = labels.slice(most);
  return (
    <>
      {labels.slice(0, most).map(([key, value]) => (
        <Chip
          key={key}
          icon="label"
          strong={isOperators(key)}
          title={`Label ${key}=${value}, set by ${isOperators(key) ? "an administrator" : "the worker"}`}
        >
          {key}={value}
        </Chip>
      ))}
      {rest.length === 0 ? null : (
        <Chip icon="label" title={rest.map(([key, value]) => `${key}=${value}`).join("\n")}>
          +{rest.length}
        </Chip>
      )}
    </>
  );
}
