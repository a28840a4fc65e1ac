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

test("what is shared knows neither the features nor the app", () => {
  const shared = /^\.\/(api|components|data|format|live)\//;
  expect(edges.filter(({ path, specifier }) => shared.test(path) && /^@\/(features|app)\//.test(specifier))).toEqual(
    [],
  );
  expect(
    edges.filter(({ path, specifier }) => path.startsWith("./features/") && specifier.startsWith("@/app/")),
  ).toEqual([]);
});

test("folders are left by their alias, so the two rules above see every crossing", () => {
  expect(edges.filter(({ specifier }) => specifier.startsWith("../"))).toEqual([]);
});
