import { expect, test } from "vitest";
import { rolloutWords, withStrategy } from "./policyRollout";

const RULES = { strategy: "waves", sizes: ["1", "50%"], soak_s: 90, per_node: null, unjudged_passes: null } as const;

test("another strategy keeps what else the policy says", () => {
  const rollout = { ...RULES, sizes: [...RULES.sizes] };
  expect(withStrategy(rollout, "canary")).toEqual({
    strategy: "canary",
    waves: ["1", "50%"],
    soak_s: 90,
    per_node: null,
    unjudged_passes: null,
  });
  expect(withStrategy(null, "default")).toMatchObject({ strategy: null, waves: [] });
});

test("only what a policy says beside its strategy is told", () => {
  expect(rolloutWords({ ...RULES, sizes: [...RULES.sizes] })).toBe("Rollout: waves of 1, 50%, each watched for 1 min.");
  expect(rolloutWords({ ...RULES, sizes: [], soak_s: null })).toBe("");
});
