import { describe, expect, test } from "vitest";
import { formatBytes, formatShare } from "./bytes";
import { formatCount } from "./rates";
import { closed, sentence } from "./text";
import { formatAge, formatClockMs, formatDateTime, formatDuration } from "./time";

const GIB = 2 ** 30;

describe("bytes", () => {
  test.each([
    [null, "unknown"],
    [undefined, "unknown"],
    [0, "0 B"],
    [1023, "1023 B"],
    [1024, "1.0 KiB"],
    [24 * GIB, "24.0 GiB"],
    [250 * GIB, "250 GiB"],
    [2048 * GIB, "2.0 TiB"],
  ])("%j reads %s", (bytes, text) => expect(formatBytes(bytes)).toBe(text));

  test("a share speaks in the unit of the whole", () => {
    expect(formatShare(0.5 * GIB, 24 * GIB)).toBe("0.5 / 24.0 GiB");
    expect(formatShare(0, 0)).toBe("0 / 0 B");
  });
});

test.each([
  ["waits for approval", "Waits for approval"],
  ["'a b' cannot be a label", "'a b' cannot be a label"],
  ["nats://10.0.0.2 does not answer", "nats://10.0.0.2 does not answer"],
  ["vm could not start smollm2: exit code 1", "vm could not start smollm2: exit code 1"],
  ["it could not be started", "It could not be started"],
  ["the node does not answer", "The node does not answer"],
  ["", ""],
])("%j stands alone as %j", (text, expected) => expect(sentence(text)).toBe(expected));

describe("time", () => {
  test.each([
    [0, "0 s"],
    [59.9, "59 s"],
    [60, "1 min"],
    [3600, "1 h"],
    [3660, "1 h 1 min"],
    [86_400 + 7200, "1 d 2 h"],
    [8 * 86_400 + 7200, "8 d"],
  ])("%d s reads %s", (seconds, text) => expect(formatDuration(seconds)).toBe(text));

  test("a node that was never seen is not a node seen zero seconds ago", () => {
    expect(formatAge(null)).toBe("never");
    expect(formatAge(0.4)).toBe("just now");
    expect(formatAge(12)).toBe("12 s ago");
  });

  test("a date that cannot be read is unknown", () => {
    const at = new Date(2030, 0, 5, 7, 8, 9);
    expect(formatDateTime(at.toISOString())).toBe("2030-01-05 07:08:09");
    expect(formatDateTime("yesterday-ish")).toBe("unknown");
    expect(formatDateTime(null)).toBe("unknown");
  });
});

test.each([
  ["the node does not answer", "The node does not answer."],
  ["disk full: free some space.", "Disk full: free some space."],
  ["", ""],
])("%j before another sentence reads %j", (text, expected) => expect(closed(text)).toBe(expected));

test.each([
  [0, "0"],
  [68, "68"],
  [9999, "9999"],
  [12_345, "12.3 k"],
])("a count of %j reads %s", (value, text) => expect(formatCount(value)).toBe(text));

test("a name that a text begins with is not written as a word", () => {
  expect(sentence("ta could not be loaded", "ta")).toBe("ta could not be loaded");
  expect(sentence("no node fits ta", "ta")).toBe("No node fits ta");
  expect(sentence("no node fits")).toBe("No node fits");
});

test("a log's time is the reader's, as all others are", () => {
  expect(formatClockMs("2026-01-01T12:34:56.007Z")).toBe(`${formatDateTime("2026-01-01T12:34:56.007Z").slice(11)}.007`);
  expect(formatClockMs("once upon a time")).toBe("once upon a time");
});
