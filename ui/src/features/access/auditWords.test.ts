import { expect, test } from "vitest";
import { detailWords, entryWords } from "./auditWords";

test("nodes are shown by name, with the number of further ones", () => {
  const names = { "id-a": "a", "id-b": "b" };
  expect(detailWords({ cause: "request", nodes: ["id-a", "id-b"], node_count: 2 }, names)).toBe(
    "cause: request · nodes: a, b",
  );
  expect(detailWords({ nodes: ["id-a", "id-b"], node_count: 39 }, names)).toBe("nodes: a, b, and 37 more");
  expect(detailWords({ nodes: 5 }, names)).toBe("nodes: 5");
});

test("a long digest is shortened", () => {
  expect(detailWords({ digest: "ab".repeat(32), empty: "" }, {})).toBe("digest: abababababab");
});

test("the subject of an entry is shown by name, once", () => {
  expect(entryWords({ subject: "id-a", detail: { name: "a", was: "new" }, names: { "id-a": "a" } })).toEqual({
    about: "a",
    more: "was: new",
  });
  expect(entryWords({ subject: "id-a", detail: { name: "old" }, names: { "id-a": "a" } })).toEqual({
    about: "a",
    more: "name: old",
  });
  expect(entryWords({ subject: "id-k", detail: { name: "plugin", scope: "user" }, names: {} })).toEqual({
    about: "plugin",
    more: "scope: user",
  });
  expect(
    entryWords({
      subject: "id-o",
      detail: { verb: "install", backend: "lost", nodes: ["id-a"], node_count: 1 },
      names: { "id-a": "a" },
    }),
  ).toEqual({
    about: "install of lost",
    more: "nodes: a",
  });
  expect(entryWords({ subject: "smollm2", detail: { revision: "7" }, names: {} })).toEqual({
    about: "smollm2",
    more: "revision: 7",
  });
});
