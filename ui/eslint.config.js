import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

// Scripts in public/ run in the page before the bundle, those in scripts/ in Node.
const browser = {
  AbortSignal: "readonly",
  document: "readonly",
  fetch: "readonly",
  localStorage: "readonly",
  window: "readonly",
};
const node = { console: "readonly", fetch: "readonly", process: "readonly", URL: "readonly" };

export default defineConfig([
  // schema.ts is generated: `npm run api-types`.
  globalIgnores(["dist/", "src/api/schema.ts"]),
  js.configs.recommended,
  { files: ["public/**/*.js"], languageOptions: { sourceType: "script", globals: browser } },
  { files: ["scripts/**/*.mjs"], languageOptions: { globals: node } },
  {
    files: ["**/*.{ts,tsx}"],
    extends: [
      tseslint.configs.strictTypeChecked,
      tseslint.configs.stylisticTypeChecked,
      reactHooks.configs.flat["recommended-latest"],
    ],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      // `() => setOpen(true)` is how handlers are written here.
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // Only matters to the React Compiler, which this UI does not use; TanStack Virtual trips it.
      "react-hooks/incompatible-library": "off",
    },
  },
]);
