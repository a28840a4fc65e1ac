import { describe, expect, it } from "vitest";
import { CodeNotLoaded, late } from "./lateCode";

describe("late", () => {
  // The texts by which the router recognizes that a module could not be fetched; it then reloads the page.
  it.each([
    "Failed to fetch dynamically imported module: /assets/ActivityPage.js",
    "error loading dynamically imported module: /assets/ActivityPage.js",
    "Importing a module script failed.",
  ])("does not let the router reload the page for: %s", async (text) => {
    const failed = await late(() => Promise.reject(new TypeError(text)))().catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(CodeNotLoaded);
    const { message } = failed as CodeNotLoaded;
    expect(message).toContain(text);
    expect(message.startsWith(text)).toBe(false);
  });
});
