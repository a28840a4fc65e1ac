import { describe, expect, test } from "vitest";
import { EventParser } from "./sse";

const STREAM = 'id: 7\nevent: nodes\ndata: {"a":\ndata: 1}\n\n: ping\n\nid: 8\r\ndata:plain\r\n\r\nevent: nodes\n\n';
const EVENTS = [
  { name: "nodes", data: '{"a":\n1}' },
  { name: "message", data: "plain" },
];

describe("the event parser", () => {
  test("reads names, multi-line data and either line end, and leaves out pings and events without data", () => {
    const parser = new EventParser();
    expect(parser.push(STREAM)).toEqual(EVENTS);
    expect(parser.lastEventId).toBe("8");
  });

  test("gives the same events wherever the chunks are cut", () => {
    for (let cut = 0; cut <= STREAM.length; cut++) {
      const parser = new EventParser();
      expect([...parser.push(STREAM.slice(0, cut)), ...parser.push(STREAM.slice(cut))]).toEqual(EVENTS);
    }
    const parser = new EventParser();
    expect(Array.from(STREAM).flatMap((character) => parser.push(character))).toEqual(EVENTS);
  });

  test("keeps the id of an event that never ended out of the resume point", () => {
    const parser = new EventParser();
    parser.push("id: 1\ndata: x\n\nid: 2\ndata: half");
    expect(parser.lastEventId).toBe("1");
  });
});
