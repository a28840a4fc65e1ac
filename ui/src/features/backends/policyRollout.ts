import type { Policy, PolicyRequest } from "@/api/types";
import { formatDuration } from "@/format/time";

type Rollout = NonNullable<Policy["rollout"]>;
export type StrategyChoice = NonNullable<Rollout["strategy"]> | "default";

/** How versions change on the nodes of a policy, as options to choose from. */
export const STRATEGIES: readonly { value: StrategyChoice; word: string }[] = [
  { value: "default", word: "By settings" },
  { value: "all", word: "All at once" },
  { value: "waves", word: "Waves" },
  { value: "canary", word: "Canary" },
];

/** The rollout of a policy with another strategy; whatever else it says stays. */
export function withStrategy(
  rollout: Policy["rollout"],
  strategy: StrategyChoice,
): NonNullable<PolicyRequest["rollout"]> {
  return {
    strategy: strategy === "default" ? null : strategy,
    waves: rollout?.sizes ?? [],
    soak_s: rollout?.soak_s ?? null,
    per_node: rollout?.per_node ?? null,
    unjudged_passes: rollout?.unjudged_passes ?? null,
  };
}

/** What the policy says beside the strategy; empty if it says nothing else. */
export function rolloutWords({ sizes, soak_s, per_node, unjudged_passes }: Rollout): string {
  const parts = [
    ...(sizes.length > 0 ? [`waves of ${sizes.join(", ")}`] : []),
    ...(soak_s === null || soak_s === undefined ? [] : [`each watched for ${formatDuration(soak_s)}`]),
    ...(per_node === null || per_node === undefined ? [] : [`${per_node} on each node`]),
    ...(unjudged_passes === false ? ["gates that cannot be judged count as failed"] : []),
  ];
  return parts.length === 0 ? "" : `Rollout: ${parts.join(", ")}.`;
}
