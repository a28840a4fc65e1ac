import { QueryClient } from "@tanstack/react-query";
import { afterEach, expect, test, vi } from "vitest";
import { api } from "@/api/client";
import { ApiError } from "@/api/errors";
import type { Operation } from "@/api/types";
import { operationQueries, watchStarted } from "./operations";

const running = {
  jobID: "1",
  state: "running",
  finished_at: null,
  dismissed_at: null,
  created_at: "",
  nodes: [],
} as unknown as Operation;
const ended = { ...running, state: "completed", finished_at: "2026-01-01T00:00:00Z" } as Operation;

afterEach(() => void vi.restoreAllMocks());

async function readTwice(): Promise<readonly Operation[]> {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  vi.spyOn(api, "listOperations").mockResolvedValueOnce([running]).mockResolvedValueOnce([]);
  await client.query(operationQueries.list());
  return client.query(operationQueries.list());
}

test("an operation that was running and is no longer listed is shown with its outcome", async () => {
  vi.spyOn(api, "readOperation").mockResolvedValue(ended);
  expect(await readTwice()).toMatchObject([{ jobID: "1", state: "completed" }]);
});

test("an operation that was dismissed or cleared is no longer shown", async () => {
  vi.spyOn(api, "readOperation").mockResolvedValue({ ...ended, dismissed_at: "2026-01-01T00:00:00Z" });
  expect(await readTwice()).toEqual([]);
  vi.spyOn(api, "readOperation").mockRejectedValue(new ApiError("there is none", 404, "not_found"));
  expect(await readTwice()).toEqual([]);
});

test("an operation that ended before any list contained it is shown with its outcome", async () => {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  vi.spyOn(api, "readOperation").mockResolvedValue(ended);
  vi.spyOn(api, "listOperations").mockResolvedValue([]);
  await watchStarted(client, "1");
  expect(await client.query(operationQueries.list())).toMatchObject([{ jobID: "1", state: "completed" }]);
});
