"""An engine with a script for coding agents: it has the agent read a file by its tool for shell commands, and then
repeats what the tool said. It speaks only OpenAI's chat completions, so requests of other APIs are translated for it.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FILE = "horse.txt"
SHELL_TOOLS: dict[str, Any] = {
    "Bash": {"command": f"cat {FILE}", "description": "Reads the file"},
    "exec_command": {"cmd": f"cat {FILE}"},
    "shell_command": {"command": f"cat {FILE}"},
    "shell": {"command": ["cat", FILE]},
}
"""The arguments of each agent's tool."""


def next_step(request: dict[str, Any]) -> dict[str, Any]:
    """The assistant's message."""
    results = [message["content"] for message in request["messages"] if message["role"] == "tool"]
    if results:
        said = results[-1] if isinstance(results[-1], str) else json.dumps(results[-1])
        return {"content": f"The file says: {said}"}
    offered = [tool["function"]["name"] for tool in request.get("tools") or ()]
    name = next((name for name in offered if name in SHELL_TOOLS), "")
    if not name:
        return {"content": "A horse."}
    function = {"name": name, "arguments": json.dumps(SHELL_TOOLS[name])}
    return {"content": None, "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    token = ""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {self.token}":
            self._answer(401, {"error": {"message": "wrong token"}})
            return
        if self.path != "/v1/chat/completions":
            self._answer(404, {"error": {"message": f"nothing at {self.path}"}})
            return
        message = next_step(request)
        reason = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        common = {"id": "chatcmpl-1", "created": 1, "model": request["model"]}
        if not request.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
            self._answer(200, {**common, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        chunk = {**common, "object": "chat.completion.chunk"}
        deltas: list[dict[str, Any]] = [{"role": "assistant", **message}, {}]
        chunks = [
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else reason}]}
            for delta in deltas
        ]
        self._stream([*chunks, {**chunk, "choices": [], "usage": usage}])

    def _answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for data in (*(json.dumps(event) for event in events), "[DONE]"):
            event = f"data: {data}\n\n".encode()
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")


def agent_engine_files() -> dict[str, bytes]:
    """A backend that a worker installs and starts."""
    manifest = (
        "protocol: openai\n"
        f'start: ["{sys.executable}", "-I", "-S", "{{dir}}/server.py", "{{host}}", "{{port}}"]\n'
        "readiness: {path: /health, stall_s: 20}\n"
        "token_env: TEST_TOKEN\n"
    )
    return {"corral.yaml": manifest.encode(), "server.py": Path(__file__).read_bytes()}


if __name__ == "__main__":
    Handler.token = os.environ.pop("TEST_TOKEN")
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
