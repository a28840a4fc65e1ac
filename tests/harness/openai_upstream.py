"""A small OpenAI-style server, as a backend process is one: it speaks `/v1`, asks for its token, and streams.

What it answers is plain to see: chat repeats what it was told, word by word, so that a test knows every byte to come.
The last user message can ask for something special: `slow` waits long before each word, `hang` never answers, `break`
ends the stream in the middle unless it continues an answer, `tool` calls the first tool, `cut` does so until the limit
of tokens, `think` thinks first, `fail` answers 500.
"""

import base64
import json
import os
import random
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class OpenAiUpstream:
    def __init__(
        self,
        *,
        models: tuple[str, ...] = ("tiny",),
        token: str = "",
        loading: int = 0,
        failing: float = 0.0,
        at: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        """`loading`: this many chat requests are first answered as a frontend does while a model is loaded. `failing`:
        the share of requests that fail at random, with an error or without an answer."""
        upstream = self
        self.models = list(models)
        self.offered: list[str] = []
        self.token = token
        self.loading = loading
        self.failing = failing
        self.failed = 0
        self.chance = random.Random(1)
        self.requests: list[tuple[str, Any]] = []
        self.held_for: list[str | None] = []
        """How long each chat request was willing to be held for a load."""
        self.open = 0
        self.broken_off = 0
        self.released = threading.Event()

        class Handler(_Handler):
            server_of = upstream

        self._server = ThreadingHTTPServer(at, Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def stop(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: OpenAiUpstream

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, {})
        elif self._refused():
            return
        elif self.path == "/v1/models":
            data = [{"id": name, "object": "model", "created": 1, "owned_by": "me"} for name in self.server_of.models]
            self._answer(200, {"object": "list", "data": data})
        elif self.path.startswith("/api/models/available?"):
            self._answer(200, {"models": [{"name": name, "installed": False} for name in self.server_of.offered]})
        else:
            self._answer(404, {"error": {"message": f"nothing at {self.path}"}})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self._refused():
            return
        request: Any = json.loads(body) if self.headers.get("Content-Type", "").startswith("application/json") else body
        upstream = self.server_of
        upstream.requests.append((self.path, request))
        if upstream.failing and upstream.chance.random() < upstream.failing:
            upstream.failed += 1
            if upstream.failed % 2:
                self._answer(500, {"error": {"message": "out of memory", "type": "server_error"}})
            else:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            return
        upstream.open += 1
        try:
            match self.path:
                case "/v1/chat/completions":
                    self._chat(request)
                case "/v1/completions":
                    self._completion(request)
                case "/v1/embeddings":
                    self._embeddings(request)
                case "/api/models/install":
                    upstream.models.append(request["name"])
                    self._answer(201, {"name": request["name"]})
                case _:
                    self._answer(404, {"error": {"message": f"nothing at {self.path}"}})
        except (BrokenPipeError, ConnectionResetError):
            upstream.broken_off += 1
        finally:
            upstream.open -= 1

    def _refused(self) -> bool:
        token = self.server_of.token
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            self._answer(401, {"error": {"message": "wrong token", "type": "invalid_request_error"}})
            return True
        return False

    def _chat(self, request: dict[str, Any]) -> None:
        upstream = self.server_of
        upstream.held_for.append(self.headers.get("X-Corral-Load-Wait"))
        if upstream.loading > 0:
            upstream.loading -= 1
            loading = {"model": request["model"], "state": "staging", "progress": 50, "node": "worker-1"}
            error = {"message": "is being loaded", "type": "model_loading", "code": "model_loading"}
            self._answer(503, {"error": error, "loading": loading}, {"Retry-After": "1"})
            return
        if not isinstance(request.get("messages"), list):
            self._answer(400, {"error": {"message": "messages must be a list", "type": "invalid_request_error"}})
            return
        messages = request["messages"]
        so_far = (messages[-1].get("content") or "") if messages[-1].get("role") == "assistant" else ""
        question = (messages[-2 if so_far else -1]).get("content") or ""
        if question == "hang":
            upstream.released.wait(60)
            return
        if question == "fail":
            self._answer(500, {"error": {"message": "the model fell over", "type": "server_error"}})
            return
        tools = request.get("tools") or []
        call = None
        is_cut = question == "cut"
        if question in ("tool", "cut") and tools:
            arguments = '{"city": "Par' if is_cut else '{"city": "Paris"}'
            function = {"name": tools[0]["function"]["name"], "arguments": arguments}
            call = {"id": "call_1", "type": "function", "function": function}
        words = (
            [] if call else [f"you said {question}".split(" ")[0], *(f" {w}" for w in f"said {question}".split(" "))]
        )
        words = words[len(so_far.split()) :]
        thought = "hmm" if question == "think" else None
        reason = "length" if is_cut else "tool_calls" if call else "stop"
        usage = {"prompt_tokens": 7, "completion_tokens": len(words), "total_tokens": 7 + len(words)}
        common = {"id": "chatcmpl-1", "created": 1, "model": request["model"]}
        if not request.get("stream"):
            message: dict[str, Any] = {"role": "assistant", "content": None if call else "".join(words)}
            if call:
                message["tool_calls"] = [call]
            if thought:
                message["reasoning_content"] = thought
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._answer(200, {**common, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self._start_stream({"X-Corral-Node": "worker-1"} if "X-Corral-Client" in self.headers else {})
        head = {**common, "object": "chat.completion.chunk"}
        self._event({**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        if thought:
            self._event({**head, "choices": [{"index": 0, "delta": {"reasoning_content": thought}}]})
        if call:
            self._event({**head, "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}}]})
        for at, word in enumerate(words):
            if question == "break" and at == 2 and not so_far:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if question == "slow":
                time.sleep(0.3)
            self._event({**head, "choices": [{"index": 0, "delta": {"content": word}}]})
        ending = {"index": 0, "delta": {}, "finish_reason": reason}
        self._event({**head, "choices": [ending]})
        if (request.get("stream_options") or {}).get("include_usage"):
            self._event({**head, "choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _completion(self, request: dict[str, Any]) -> None:
        choice = {"index": 0, "text": f"{request['prompt']} and so on", "finish_reason": "length", "logprobs": None}
        usage = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
        answer = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": request["model"]}
        self._answer(200, {**answer, "choices": [choice], "usage": usage})

    def _embeddings(self, request: dict[str, Any]) -> None:
        given = request["input"]
        texts = given if isinstance(given, list) else [given]
        packed = request.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": at, "embedding": _vector(text, packed=packed)}
            for at, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        self._answer(200, {"object": "list", "model": request["model"], "data": data, "usage": usage})

    def _answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _start_stream(self, headers: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()

    def _event(self, value: Any) -> None:
        self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _vector(text: str, *, packed: bool) -> list[float] | str:
    vector = [float(len(text)), 0.5]
    return base64.b64encode(struct.pack("<2f", *vector)).decode() if packed else vector


def upstream_files() -> dict[str, bytes]:
    """The same as a backend that a worker installs and starts."""
    manifest = (
        "protocol: openai\n"
        f'start: ["{sys.executable}", "-I", "-S", "{{dir}}/server.py", "{{host}}", "{{port}}"]\n'
        "readiness: {path: /health, stall_s: 20}\n"
        "token_env: TEST_TOKEN\n"
    )
    return {"corral.yaml": manifest.encode(), "server.py": Path(__file__).read_bytes()}


if __name__ == "__main__":
    OpenAiUpstream(token=os.environ.pop("TEST_TOKEN"), at=(sys.argv[1], int(sys.argv[2])))
    threading.Event().wait()
