import { expect, test } from "vitest";
import type { Rollout } from "@/api/types";
import { applyRollouts } from "./rollouts";

const rollout = (id: string, created_at: string, summary = "") => ({ id, created_at, summary }) as Rollout;

test("a changed rollout replaces its row, and a new one is first", () => {
  const known = { rollouts: [rollout("b", "2026-01-02"), rollout("a", "2026-01-01")], revisions: [] };
  const changed = [rollout("a", "2026-01-01", "completed"), rollout("c", "2026-01-03")];
  const found = applyRollouts(known, { changed, removed: [] });
  expect(found.rollouts.map(({ id, summary }) => [id, summary])).toEqual([
    ["c", ""],
    ["b", ""],
    ["a", "completed"],
  ]);
});
