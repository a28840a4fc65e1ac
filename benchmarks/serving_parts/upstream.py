"""A mock replica: one fast process that answers OpenAI calls with fixed bytes, and streams at a steady pace.

    upstream.py PORT [--chunk-ms 10] [--chunks 100] [--core N]

One timer for all streams instead of one for each, so that it is not what a benchmark waits for.
"""

import argparse
import asyncio
import os

import uvloop

USAGE = b'"usage":{"prompt_tokens":12,"completion_tokens":9,"total_tokens":21}'
ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"bench","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"'
    + b"A cluster of horses grazes. "
    * 12
    + b'"},"finish_reason":"stop"}],'
    b"" + USAGE + b"}"
)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":'
    b'[{"index":0,"delta":{"content":" horse"},"finish_reason":null}]}\n\n'
)
CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
LAST = CHUNK + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
SLOT_S = 0.001


class Wheel:
    """Every stream has a slot; each millisecond one slot's streams get a chunk."""

    def __init__(self, chunk_s: float, chunks: int) -> None:
        self.chunks = chunks
        self.slots: list[dict[Replica, int]] = [{} for _ in range(max(1, round(chunk_s / SLOT_S)))]
        self.at = 0

    def add(self, replica: "Replica") -> None:
        # The first chunk goes out at once, the next one a whole turn later.
        replica.transport.write(STREAM_HEAD + CHUNK)
        self.slots[(self.at - 1) % len(self.slots)][replica] = self.chunks - 1

    def drop(self, replica: "Replica") -> None:
        for slot in self.slots:
            slot.pop(replica, None)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            slot = self.slots[self.at]
            done = []
            for replica, left in slot.items():
                if left > 1:
                    replica.transport.write(CHUNK)
                    slot[replica] = left - 1
                else:
                    replica.transport.write(LAST)
                    done.append(replica)
            for replica in done:
                del slot[replica]
            self.at = (self.at + 1) % len(self.slots)
            next_s += SLOT_S
            await asyncio.sleep(max(0.0, next_s - loop.time()))


class Replica(asyncio.Protocol):
    def __init__(self, wheel: Wheel) -> None:
        self.wheel = wheel
        self.buffer = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.wheel.drop(self)

    def data_received(self, data: bytes) -> None:
        if self.buffer:
            data = self.buffer + data
        head_end = data.find(b"\r\n\r\n")
        if head_end < 0:
            self.buffer = data
            return
        head = data[:head_end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
        if at < 0 and b"chunked" in head and not data.endswith(b"0\r\n\r\n"):
            self.buffer = data
            return
        if len(data) < head_end + 4 + length:
            self.buffer = data
            return
        self.buffer = b""
        if b'"stream":true' in data or b'"stream": true' in data:
            self.wheel.add(self)
        else:
            self.transport.write(RESPONSE)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--chunk-ms", type=float, default=10.0)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--core", type=int, help="the processor to run on")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, [options.core])
    wheel = Wheel(options.chunk_ms / 1000, options.chunks)
    server = await asyncio.get_running_loop().create_server(
        lambda: Replica(wheel), "127.0.0.1", options.port, backlog=4096
    )
    async with server:
        await wheel.run()


if __name__ == "__main__":
    uvloop.run(main())
