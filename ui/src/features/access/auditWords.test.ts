import { expect, test } from "vitest";
import { detailWords } from "./auditWords";

test("machines are told by name, and how many more there were", () => {
  const names = { "id-a": "a", "id-b": "b" };
  expect(detailWords({ cause: "request", nodes: ["id-a", "id-b"], node_count: 2 }, names)).toBe("cause: request · nodes: a, b");
  expect(detailWords({ nodes: ["id-a", "id-b"], node_count: 39 }, names)).toBe("nodes: a, b, and 37 more");
  expect(detailWords({ nodes: 5 }, names)).toBe("nodes: 5");
});

test("of a long digest its beginning is told", () => {
  expect(detailWords({ digest: "ab".repeat(32), empty: "" }, {})).toBe("digest: abababababab");
});
