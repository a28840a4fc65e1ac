import { expect, test } from "vitest";

const sources = import.meta.glob<string>("./**/*.{ts,tsx}", { query: "?raw", import: "default", eager: true });

function importsOf(text: string): string[] {
  return [...text.matchAll(/(?:from|import)\s+"([^"]+)"/g)].map(([, specifier]) => specifier ?? "");
}

const edges = Object.entries(sources).flatMap(([path, text]) =>
  importsOf(text).map((specifier) => ({ path, specifier })),
);

test("features do not import each other", () => {
  const crossing = edges.filter(({ path, specifier }) => {
    const own = /^\.\/features\/([^/]+)\//.exec(path)?.[1];
    const other = /^@\/features\/([^/]+)/.exec(specifier)?.[1];
    return own !== undefined && other !== undefined && own !== other;
  });
  expect(crossing).toEqual([]);
});

test("shared modules import neither features nor the app", () => {
  const shared = /^\.\/(api|components|data|format|live)\//;
  expect(edges.filter(({ path, specifier }) => shared.test(path) && /^@\/(features|app)\//.test(specifier))).toEqual(
    [],
  );
  expect(
    edges.filter(({ path, specifier }) => path.startsWith("./features/") && specifier.startsWith("@/app/")),
  ).toEqual([]);
});

test("imports across folders use the alias, so the two rules above see each of them", () => {
  expect(edges.filter(({ specifier }) => specifier.startsWith("../"))).toEqual([]);
});
