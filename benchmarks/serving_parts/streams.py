"""Many streams at once: reads what comes, and tells how it came.

    streams.py PORT --streams 100 --seconds 3 [--length-s 1.0] [--key KEY]

Each connection starts one stream after the other; the first starts are spread over one stream's length. Prints JSON:
time to the first chunk, chunks, the longest pause inside a stream, streams that failed.
"""

import argparse
import asyncio
import json
import time

import uvloop

BODY = b'{"model":"bench","messages":[{"role":"user","content":"Tell me about horses."}],"max_tokens":64,"stream":true}'


class Streams:
    def __init__(self) -> None:
        self.first_s: list[float] = []
        self.chunks = 0
        self.ended = 0
        self.failed = 0
        self.errors = 0
        self.longest_pause_s = 0.0
        self.measuring = False
        self.over = False


class Stream(asyncio.Protocol):
    def __init__(self, all_streams: Streams, request: bytes) -> None:
        self.all = all_streams
        self.request = request
        self.began_s = 0.0
        self.last_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.begin()

    def begin(self) -> None:
        self.began_s = time.monotonic()
        self.last_s = 0.0
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        streams = self.all
        count = data.count(b'"delta"')
        if count and streams.measuring:
            streams.chunks += count
            if not self.last_s:
                streams.first_s.append(now_s - self.began_s)
            elif now_s - self.last_s > streams.longest_pause_s:
                streams.longest_pause_s = now_s - self.last_s
        if count:
            self.last_s = now_s
        if b'"error"' in data:
            streams.errors += 1
        if data.endswith(b"0\r\n\r\n"):
            streams.ended += 1
            if not streams.over:
                self.begin()
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 200"):
            streams.failed += 1
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.all.over:
            self.all.failed += 1


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--length-s", type=float, default=1.0)
    parser.add_argument("--key", default="corral-bench-key")
    options = parser.parse_args()
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (options.key.encode(), len(BODY), BODY)
    )
    streams = Streams()
    loop = asyncio.get_running_loop()
    for _ in range(options.streams):
        await loop.create_connection(lambda: Stream(streams, request), "127.0.0.1", options.port)
        await asyncio.sleep(options.length_s / options.streams)
    streams.measuring = True
    began_s = time.monotonic()
    print("measuring", flush=True)
    await asyncio.sleep(options.seconds)
    streams.measuring = False
    took_s = time.monotonic() - began_s
    streams.over = True
    first = sorted(streams.first_s)
    result = {
        "chunks": streams.chunks,
        "chunks_per_s": streams.chunks / took_s,
        "first_p50_ms": first[len(first) // 2] * 1000 if first else None,
        "first_p99_ms": first[len(first) * 99 // 100] * 1000 if first else None,
        "longest_pause_ms": streams.longest_pause_s * 1000,
        "ended": streams.ended,
        "failed": streams.failed,
        "errors": streams.errors,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
