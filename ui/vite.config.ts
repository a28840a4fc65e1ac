import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [react()],
  // Relative addresses, so that the UI also works behind a proxy that serves Corral below a path.
  base: "./",
  resolve: { tsconfigPaths: true },
  build: {
    outDir: "../src/corral/frontend/static",
    emptyOutDir: true,
    // Nothing may need a `data:` exception in the frontend's Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The budget that counts is 250 kB compressed, and tests/browser/test_bundle.py keeps it.
    chunkSizeWarningLimit: 800,
    target: ["chrome123", "firefox120", "safari17.5"],
  },
  server: {
    proxy: { "/api": "http://127.0.0.1:8080" },
  },
});
