import { describe, expect, test } from "vitest";
import {
  readView,
  validateNodesSearch,
  withAllStatuses,
  withDialog,
  withSort,
  withStatusToggled,
  withText,
} from "./view";

describe("the address", () => {
  test("keeps what it understands and drops the rest", () => {
    expect(validateNodesSearch({ q: "gpu", status: "offline,nonsense", sort: "-seen", add: "open", x: "1" })).toEqual({
      q: "gpu",
      status: "offline,nonsense",
      sort: "-seen",
      add: "open",
    });
    expect(validateNodesSearch({ q: 7, status: "nonsense", sort: "colour", add: "1" })).toEqual({});
  });

  test("gives the view", () => {
    expect(readView({ q: "gpu", status: "offline,nonsense", sort: "-seen" })).toEqual({
      text: "gpu",
      statuses: ["offline"],
      sort: "seen",
      descending: true,
    });
    expect(readView({})).toEqual({ text: "", statuses: [], sort: "name", descending: false });
  });

  test("omits default values", () => {
    expect(withText({ q: "a" }, "  ")).toEqual({});
    expect(withStatusToggled({ status: "offline" }, "offline")).toEqual({});
    expect(withAllStatuses({ status: "offline", q: "a" })).toEqual({ q: "a" });
    expect(withSort({ sort: "-name" }, "name")).toEqual({});
    expect(withDialog({ add: "open", q: "a" }, false)).toEqual({ q: "a" });
  });

  test("adds statuses one by one and reverses the sort order of a column", () => {
    expect(withStatusToggled({ status: "offline" }, "pending")).toEqual({ status: "offline,pending" });
    expect(withSort({}, "seen")).toEqual({ sort: "seen" });
    expect(withSort({ sort: "seen" }, "seen")).toEqual({ sort: "-seen" });
    expect(withSort({}, "name")).toEqual({ sort: "-name" });
  });
});
