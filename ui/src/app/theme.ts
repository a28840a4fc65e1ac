import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "corral.theme";
const watchers = new Set<() => void>();

function read(): Theme {
  const theme = document.documentElement.dataset.theme;
  return theme === "light" || theme === "dark" ? theme : "system";
}

export function setTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is disabled in this browser: the choice lasts until the page is closed.
  }
  for (const watcher of watchers) watcher();
}

export function useTheme(): Theme {
  return useSyncExternalStore((watcher) => {
    watchers.add(watcher);
    return () => watchers.delete(watcher);
  }, read);
}
