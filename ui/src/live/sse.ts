/** Server-sent events, read from a stream of text chunks.
 *
 * Not the browser's EventSource: it hides the pings, so a connection that died silently would look alive, and it
 * gives up for good on an answer such as 503, which is what a restarting frontend behind a proxy gives. */

export interface ServerEvent {
  name: string;
  data: string;
}

export class EventParser {
  /** What to send as `Last-Event-ID` when connecting again. */
  lastEventId = "";

  #unfinished = "";
  #name = "";
  #data: string[] = [];
  #id: string | null = null;

  /** Events that this chunk completed; a chunk may end anywhere, even between CR and LF. */
  push(chunk: string): ServerEvent[] {
    const text = this.#unfinished + chunk;
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    this.#unfinished = lines.pop() ?? "";
    return lines.flatMap((line) => this.#take(line) ?? []);
  }

  #take(line: string): ServerEvent | null {
    if (line === "") return this.#finish();
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return null;
  }

  #finish(): ServerEvent | null {
    const event = { name: this.#name || "message", data: this.#data.join("\n") };
    const hasData = this.#data.length > 0;
    if (this.#id !== null) this.lastEventId = this.#id;
    this.#name = "";
    this.#data = [];
    this.#id = null;
    return hasData ? event : null;
  }
}
