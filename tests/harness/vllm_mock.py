"""An engine with vLLM's flags, routes and metrics. It computes nothing: each step gives every running request a token.

Runs alone (`python vllm_mock.py serve MODEL ...`) and as a backend that a registry offers (`vllm_files`).
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

STEP_S = 0.05
MAX_NUM_SEQS = 256
MAX_MODEL_LEN = 40_960


@dataclass
class Request:
    tokens: int
    arrived_s: float
    output: "asyncio.Queue[int]" = field(default_factory=asyncio.Queue)
    sent: int = 0


class Engine:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.token = os.environ.pop("VLLM_API_KEY", "")
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.queue_s = self.first_s = 0.0
        self.begun = self.first = 0
        self.most_running = 0

    async def run(self) -> None:
        due_s = time.monotonic()
        while True:
            due_s = max(due_s + self.options.step_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())
            self.step(time.monotonic())

    def step(self, now_s: float) -> None:
        while self.waiting and len(self.running) < self.options.max_num_seqs:
            request = self.waiting.popleft()
            self.queue_s += now_s - request.arrived_s
            self.begun += 1
            self.running.append(request)
        self.most_running = max(self.most_running, len(self.running))
        for request in self.running:
            if not request.sent:
                self.first_s += now_s - request.arrived_s
                self.first += 1
            request.sent += 1
            request.output.put_nowait(request.sent)
        self.running = [request for request in self.running if request.sent < request.tokens]

    def metrics(self) -> bytes:
        labels = '{engine="0",model_name="m"}'
        values = {
            "num_requests_running": len(self.running),
            "num_requests_waiting": len(self.waiting),
            "request_queue_time_seconds_sum": self.queue_s,
            "request_queue_time_seconds_count": self.begun,
            "time_to_first_token_seconds_sum": self.first_s,
            "time_to_first_token_seconds_count": self.first,
            "mock_most_running": self.most_running,
        }
        return "".join(f"vllm:{name}{labels} {value}\n" for name, value in values.items()).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                head = {}
                while (field_line := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = field_line.partition(b":")
                    head[name.lower()] = value.strip()
                body = await reader.readexactly(int(head.get(b"content-length", b"0")))
                await self.answer(line.split()[1].decode(), head, body, writer)
                await writer.drain()
                if head.get(b"connection", b"").lower() == b"close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, head: dict[bytes, bytes], body: bytes, writer: asyncio.StreamWriter) -> None:
        known = not self.token or head.get(b"authorization", b"") == b"Bearer " + self.token.encode()
        if path.startswith("/v1/") and not known:
            _send(writer, b"{}", status=b"401 Unauthorized")
        elif path == "/health":
            _send(writer, b"")
        elif path == "/metrics":
            _send(writer, self.metrics(), kind=b"text/plain")
        elif path == "/v1/models":
            model = {"id": self.options.served_model_name, "max_model_len": self.options.max_model_len}
            _send(writer, json.dumps({"object": "list", "data": [model]}).encode())
        else:
            await self.complete(json.loads(body), writer)

    async def complete(self, asked: dict[str, object], writer: asyncio.StreamWriter) -> None:
        tokens = int(str(asked.get("max_tokens") or 16))
        request = Request(tokens, time.monotonic())
        self.waiting.append(request)
        if asked.get("stream"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(1, tokens + 1):
            await request.output.get()
            if asked.get("stream"):
                delta = {"choices": [{"index": 0, "delta": {"content": f"t{number} "}}]}
                _send_chunk(writer, b"data: " + json.dumps(delta).encode() + b"\n\n")
        if asked.get("stream"):
            _send_chunk(writer, b"data: [DONE]\n\n")
            writer.write(b"0\r\n\r\n")
        else:
            usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
            _send(writer, json.dumps({"object": "chat.completion", "choices": [], "usage": usage}).encode())


def _send(
    writer: asyncio.StreamWriter, body: bytes, *, status: bytes = b"200 OK", kind: bytes = b"application/json"
) -> None:
    writer.write(b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (status, kind, len(body), body))


def _send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", default="m")
    parser.add_argument("--max-num-seqs", type=int, default=MAX_NUM_SEQS)
    parser.add_argument("--max-model-len", type=int, default=MAX_MODEL_LEN)
    parser.add_argument("--step-s", type=float, default=STEP_S)
    options = parser.parse_args(arguments)
    engine = Engine(options)
    async with asyncio.TaskGroup() as tasks:
        server = await asyncio.start_server(engine.serve, options.host, options.port)
        tasks.create_task(engine.run())
        await server.serve_forever()


def vllm_files() -> dict[str, bytes]:
    """An image that runs it, with the manifest that Corral's gallery has for the real one."""
    manifest = {
        "protocol": "openai",
        "start": [
            sys.executable, "-I", "-S", "{dir}/vllm_mock.py", "serve", "{model}", "--host={host}", "--port={port}",
        ],
        "readiness": {"path": "/health"},
        "token_env": "VLLM_API_KEY",
        "served_name": ["--served-model-name={name}"],
        "context": ["--max-model-len={context}"],
        "slots": ["--max-num-seqs={slots}"],
    }  # fmt: skip
    return {"corral.json": json.dumps(manifest).encode(), "vllm_mock.py": Path(__file__).read_bytes()}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
