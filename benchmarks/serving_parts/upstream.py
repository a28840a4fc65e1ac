"""A mock replica: one fast process that answers OpenAI calls with fixed bytes, and streams at a steady pace.

    upstream.py PORT [--chunk-ms 10] [--chunks 100]

Written on asyncio.Protocol so that it is never what a benchmark waits for. It sends the time at which each chunk left,
so that a reader on the same machine can tell how long the chunk took.
"""

import argparse
import asyncio
import time

import uvloop

USAGE = b'"usage":{"prompt_tokens":12,"completion_tokens":9,"total_tokens":21}'
ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"bench","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"'
    + b"A herd of horses grazes. " * 12
    + b'"},"finish_reason":"stop"}],'
    + USAGE
    + b"}"
)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":%d,"model":"bench","choices":[{"index":0,'
    b'"delta":{"content":" horse"},"finish_reason":null}]}\n\n'
)
DONE = b"data: [DONE]\n\n"


class Replica(asyncio.Protocol):
    def __init__(self, chunk_s: float, chunks: int) -> None:
        self.chunk_s = chunk_s
        self.chunks = chunks
        self.buffer = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def connection_lost(self, error: Exception | None) -> None:
        if self.timer:
            self.timer.cancel()

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
        if len(data) < head_end + 4 + length:
            self.buffer = data
            return
        self.buffer = b""
        if b'"stream":true' in data[-64:] or b'"stream":true' in data[head_end : head_end + 128]:
            self.left = self.chunks
            self.next_s = self.loop.time()
            self.transport.write(STREAM_HEAD)
            self.send_chunk()
        else:
            self.transport.write(RESPONSE)

    def send_chunk(self) -> None:
        self.left -= 1
        event = EVENT % time.monotonic_ns()
        data = b"%x\r\n%b\r\n" % (len(event), event)
        if self.left == 0:
            data += b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE)
        self.transport.write(data)
        if self.left:
            self.next_s += self.chunk_s
            self.timer = self.loop.call_at(self.next_s, self.send_chunk)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--chunk-ms", type=float, default=10.0)
    parser.add_argument("--chunks", type=int, default=100)
    options = parser.parse_args()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Replica(options.chunk_ms / 1000, options.chunks), "127.0.0.1", options.port, backlog=4096
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
