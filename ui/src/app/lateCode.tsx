import { useEffect } from "react";
import { Empty } from "@/components/Answers";
import { fetchAllLateCode } from "@/components/lateCode";

const FIRST_PAGE_IS_THERE_MS = 5000;

export function useAllCode(): void {
  useEffect(() => {
    const timer = setTimeout(() => void fetchAllLateCode(), FIRST_PAGE_IS_THERE_MS);
    return () => clearTimeout(timer);
  }, []);
}

const ASK_EVERY_MS = 1000;

/** Browsers remember that a module could not be fetched, so the whole UI reloads when the frontend responds. */
export function WaitForFrontend() {
  useEffect(() => {
    const timer = setInterval(() => {
      fetch("healthz", { cache: "no-store" }).then(
        ({ ok }) => {
          if (ok) location.reload();
        },
        () => undefined,
      );
    }, ASK_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <Empty
      icon="warning"
      title="Corral is not responding"
      hint="This page is not loaded yet. It opens when the frontend is back online."
    />
  );
}
