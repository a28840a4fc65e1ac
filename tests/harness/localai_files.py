"""The file server of a LocalAI worker: uploads and what is there, by LocalAI's routes."""

import hashlib
import json
import re
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class LocalAiFiles(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, root: Path, *, port: int, token: str, resumable: bool) -> None:
        """`resumable`: uploads can be continued, as since 2026-05-31."""
        super().__init__(("127.0.0.1", port), _Request)
        self.root, self.token, self.resumable = root, token, resumable
        self.received: list[str] = []
        """Keys of complete uploads."""
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(10)

    def path_of(self, key: str) -> Path | None:
        area = next((area for area in ("models", "data") if key.startswith(f"{area}/")), None)
        base = self.root / (area or "staging")
        path = base / (key.removeprefix(f"{area}/") if area else key)
        return path if path.resolve().is_relative_to(base.resolve()) else None


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LocalAiFiles

    def _key(self, route: str) -> str | None:
        """None, and an answer, for a client without the token."""
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._say(401, b"unauthorized\n")
            return None
        return unquote(urlsplit(self.path).path).removeprefix(route)

    def _say(self, status: int, body: bytes = b"", /, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content_length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        key = self._key("/v1/files/")
        if key is None:
            return
        file = self.server.path_of(key)
        if file is None or file.is_dir():
            return self._say(400, b"is a directory\n")
        if not file.exists():
            return self._say(404, b"not found\n")
        size = str(file.stat().st_size)
        target = _beside(file, ".sha256.target")
        if self.server.resumable and target.exists():
            digest = {"x_target_sha256": target.read_text()}
        else:
            digest = {"x_content_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        self._say(200, content_length=size, x_file_size=size, x_local_path=str(file), **digest)

    def do_GET(self) -> None:
        lists = self.path.startswith("/v1/files-list/")
        key = self._key("/v1/files-list/" if lists else "/v1/files/")
        if key is None:
            return
        path = self.server.path_of(key)
        if path is None or not (path.is_dir() if lists else path.is_file()):
            return self._say(404, b"not found\n")
        if not lists:
            return self._say(200, path.read_bytes())
        found = sorted(str(one.relative_to(path)) for one in path.rglob("*") if one.is_file())
        self._say(200, json.dumps({"files": found or None}).encode())

    def do_POST(self) -> None:
        key = self._key("/v1/files/")
        if key is None:
            return
        if key != "temp":
            return self._say(404, b"not found\n")
        staging = self.server.root / "staging"
        staging.mkdir(parents=True, exist_ok=True)
        _, name = tempfile.mkstemp(prefix="localai-output-", suffix=".tmp", dir=staging)
        self._say(200, json.dumps({"local_path": name}).encode())

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        key = self._key("/v1/files/")
        if key is None:
            return
        file = self.server.path_of(key)
        if file is None:
            return self._say(400, b"path escapes\n")
        file.parent.mkdir(parents=True, exist_ok=True)
        resumable, given = self.server.resumable, self.headers.get("X-Content-SHA256", "")
        span = RANGE.fullmatch(self.headers.get("Content-Range", "")) if resumable else None
        start, total = (int(span[1]), int(span[3])) if span else (0, len(body))
        there = file.read_bytes() if start and file.exists() else b""
        if start != len(there):
            return self._say(416, x_file_size=str(len(there)), content_range=f"bytes */{total}")
        whole = there + body
        file.write_bytes(whole)
        target = _beside(file, ".sha256.target")
        if len(whole) < total:
            target.write_text(given)
            return self._say(308, range=f"bytes=0-{len(whole) - 1}", x_file_size=str(len(whole)))
        digest = hashlib.sha256(whole).hexdigest()
        if resumable and given and digest != given:
            file.unlink()
            return self._say(400, b"hash mismatch\n")
        _beside(file, ".sha256").write_text(digest)
        target.unlink(missing_ok=True)
        self.server.received.append(key)
        self._say(200, json.dumps({"local_path": str(file)}).encode())

    def log_message(self, *_: object) -> None:
        pass


def _beside(file: Path, ending: str) -> Path:
    return file.with_name(file.name + ending)
