"""A server that speaks as Ollama does, as far as Corral uses it: the OpenAI API below `/v1`, and the front page and
version of its native API, which show what Corral leaves alone.

It differs from other servers of that API: every model has a tag (`qwen3` is `qwen3:latest`), every delta has the role,
thoughts are in `reasoning`, each chunk of a text completion has a usage of zeros, an empty list of models is null,
`max_completion_tokens` is unknown, and paths that it does not have are answered in plain text. The last message can
ask for `tool`, `think` or `busy`."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LATEST = ":latest"


class OllamaUpstream:
    def __init__(self, *models: str) -> None:
        """`models`: with their tags."""
        upstream = self
        self.models = list(models)
        self.requests: list[tuple[str, Any]] = []

        class Handler(_Handler):
            server_of = upstream

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """As Ollama prints it: without the path of the OpenAI API."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: OllamaUpstream

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        upstream = self.server_of
        upstream.requests.append((self.path, None))
        if self.path == "/v1/models":
            listed = [{"id": name, "object": "model", "created": 1, "owned_by": "library"} for name in upstream.models]
            self._answer(200, {"object": "list", "data": listed or None})
        elif self.path == "/":
            self._text(200, "Ollama is running")
        elif self.path == "/api/version":
            self._answer(200, {"version": "0.11.4"})
        else:
            self._text(404, "404 page not found")

    def do_POST(self) -> None:
        request: Any = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        self.server_of.requests.append((self.path, request))
        answers = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._complete,
            "/v1/embeddings": self._embed,
        }
        answer = answers.get(self.path)
        if answer is None:
            self._text(404, "404 page not found")
            return
        name = request["model"]
        if name not in self.server_of.models and f"{name}{LATEST}" not in self.server_of.models:
            self._error(404, "not_found_error", f'model "{name}" not found, try pulling it first')
            return
        answer(request)

    def _chat(self, request: dict[str, Any]) -> None:
        last = request["messages"][-1]
        question = last.get("content")
        if not isinstance(question, str):
            self._error(400, "invalid_request_error", "invalid message content type: <nil>")
            return
        if question == "busy":
            self._error(503, "api_error", "server busy, please try again.  maximum pending requests exceeded")
            return
        words: list[dict[str, Any]] = [{"content": word} for word in ("you", " said ", question)]
        reason = "stop"
        if question == "think":
            words.insert(0, {"content": "", "reasoning": "hmm"})
        if question == "tool":
            function = {"name": request["tools"][0]["function"]["name"], "arguments": '{"city":"Paris"}'}
            words = [
                {"content": "", "tool_calls": [{"id": "call_1", "index": 0, "type": "function", "function": function}]}
            ]
            reason = "tool_calls"
        most = request.get("max_tokens")
        if most and most < len(words):
            words, reason = words[:most], "length"
        usage = {"prompt_tokens": 26, "completion_tokens": len(words), "total_tokens": 26 + len(words)}
        head = {"id": "chatcmpl-1", "created": 1, "model": request["model"], "system_fingerprint": "fp_ollama"}
        if not request.get("stream"):
            whole: dict[str, Any] = {"role": "assistant", "content": "".join(word["content"] for word in words)}
            whole |= {name: word[name] for word in words for name in ("reasoning", "tool_calls") if name in word}
            choice = {"index": 0, "message": whole, "finish_reason": reason}
            self._answer(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        head["object"] = "chat.completion.chunk"
        self._start_stream()
        for word in words:
            delta = {"role": "assistant", **word}
            self._event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        end = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": reason}
        self._event({**head, "choices": [end]})
        if (request.get("stream_options") or {}).get("include_usage"):
            self._event({**head, "choices": [], "usage": usage})
        self._end_stream()

    def _complete(self, request: dict[str, Any]) -> None:
        parts = [request["prompt"], " and so on"]
        usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": request["model"]}
        if not request.get("stream"):
            choice = {"text": "".join(parts), "index": 0, "finish_reason": "stop"}
            self._answer(200, {**head, "choices": [choice], "usage": usage})
            return
        shows_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        zeros = {"usage": dict.fromkeys(usage, 0)} if shows_usage else {}
        self._start_stream()
        for text, reason in ((parts[0], None), (parts[1], None), ("", "stop")):
            self._event({**head, "choices": [{"text": text, "index": 0, "finish_reason": reason}], **zeros})
        if shows_usage:
            self._event({**head, "choices": [], "usage": usage})
        self._end_stream()

    def _embed(self, request: dict[str, Any]) -> None:
        given = request["input"]
        texts = given if isinstance(given, list) else [given]
        data = [{"object": "embedding", "embedding": [0.5, 1.0], "index": at} for at in range(len(texts))]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        self._answer(200, {"object": "list", "data": data, "model": request["model"], "usage": usage})

    def _error(self, status: int, kind: str, message: str) -> None:
        self._answer(status, {"error": {"message": message, "type": kind, "param": None, "code": None}})

    def _answer(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode() + b"\n")

    def _text(self, status: int, text: str) -> None:
        self._send(status, "text/plain", text.encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _start_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _event(self, value: Any) -> None:
        self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _end_stream(self) -> None:
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
