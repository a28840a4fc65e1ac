"""Debian's docker-registry on loopback, and images pushed to it over its own API."""

import contextlib
import gzip
import hashlib
import io
import json
import re
import shutil
import socket
import subprocess
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.ports import free_port
from harness.waiting import is_listening, wait_until

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer_of(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class OciRegistry:
    def __init__(self, directory: Path) -> None:
        program = shutil.which("docker-registry")
        if program is None:
            pytest.skip("docker-registry is not installed")
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.log = directory / "log"
        self._data = directory / "data"
        config = directory / "config.yml"
        config.write_text(
            f"version: 0.1\nlog: {{accesslog: {{disabled: false}}}}\n"
            f"storage: {{filesystem: {{rootdirectory: {directory / 'data'}}}}}\n"
            f"http: {{addr: '127.0.0.1:{self.port}'}}\n"
        )
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
        wait_until(lambda: is_listening(self.port) or None, what="docker-registry listens")

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def push(
        self, repository: str, *layers: Mapping[str, bytes], tag: str = "latest", architecture: str = "amd64"
    ) -> str:
        """The manifest's digest."""
        raw = [layer_of(files) for files in layers]
        packed = [gzip.compress(layer, compresslevel=1, mtime=0) for layer in raw]
        config = json.dumps(
            {
                "os": "linux",
                "architecture": architecture,
                "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in raw]},
            }
        ).encode()
        for blob in (config, *packed):
            self._upload(repository, blob)
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"mediaType": CONFIG, "digest": digest_of(config), "size": len(config)},
                "layers": [{"mediaType": LAYER, "digest": digest_of(blob), "size": len(blob)} for blob in packed],
            }
        ).encode()
        self._send("PUT", f"http://{self.host}/v2/{repository}/manifests/{tag}", manifest, MANIFEST)
        return digest_of(manifest)

    def _upload(self, repository: str, blob: bytes) -> None:
        location = self._send("POST", f"http://{self.host}/v2/{repository}/blobs/uploads/", b"", "")
        joint = "&" if "?" in location else "?"
        self._send("PUT", f"{location}{joint}digest={digest_of(blob)}", blob, "application/octet-stream")

    def _send(self, method: str, url: str, data: bytes, kind: str) -> str:
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=20) as response:
            location: str = response.headers.get("Location", "")
            return location if location.startswith("http") else f"http://{self.host}{location}"

    def blob_downloads(self, *, from_bytes: int = 0) -> int:
        """How often a blob of at least that size was fetched, by the registry's own log."""
        sizes = re.findall(r'"GET /v2/\S+/blobs/sha256:\S+ HTTP/1\.1" 200 (\d+) ', self.log.read_text(errors="replace"))
        return sum(int(size) >= from_bytes for size in sizes)

    def forget(self, repository: str, digest: str) -> None:
        """As after a collection of what no tag names any more."""
        kept = self._data / "docker" / "registry" / "v2" / "repositories" / repository / "_manifests" / "revisions"
        shutil.rmtree(kept / "sha256" / digest.removeprefix("sha256:"))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


class Trickle:
    """Passes a server's answers on at a set rate: a slow line between a worker and its registry."""

    def __init__(self, target_port: int, *, bytes_per_s: float) -> None:
        self._target_port, self.bytes_per_s = target_port, bytes_per_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.asked: list[bytes] = []
        """What clients sent, piece by piece."""
        self.refusing = False
        self._start(self._accept)

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=run, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            try:
                server = None if self.refusing else socket.create_connection(("127.0.0.1", self._target_port))
            except ConnectionError:
                server = None
            if server is None:
                client.close()
                continue
            self._sockets += [client, server]
            self._start(self._pump, client, server, None)
            self._start(self._pump, server, client, self.bytes_per_s)

    def _pump(self, source: socket.socket, target: socket.socket, rate: float | None) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set() and (data := source.recv(16384)):
                if rate is None:
                    self.asked.append(data)
                target.sendall(data)
                if rate is not None:
                    self._over.wait(len(data) / self.bytes_per_s)
            target.shutdown(socket.SHUT_WR)

    def refuse(self) -> None:
        """Ends all connections, also those that workers keep for later requests, and refuses new ones."""
        self.refusing = True
        for end in list(self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would not wake who accepts
        self._threads[0].join(60)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        for end in self._sockets:
            end.close()


class SharedLine(Trickle):
    """One line for all connections together. Counts what leaves the registry."""

    def __init__(self, target_port: int, *, bytes_per_s: float) -> None:
        self.passed_bytes = 0
        self._free_at_s = 0.0
        self._turns = threading.Lock()
        super().__init__(target_port, bytes_per_s=bytes_per_s)

    def _pump(self, source: socket.socket, target: socket.socket, rate: float | None) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set() and (data := source.recv(65536)):
                if rate is None:
                    self.asked.append(data)
                else:
                    self._over.wait(self._take_turn(len(data)))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def _take_turn(self, count: int) -> float:
        """How long these bytes have to wait for those before them."""
        with self._turns:
            now_s = time.monotonic()
            self.passed_bytes += count
            self._free_at_s = max(now_s, self._free_at_s) + count / self.bytes_per_s
            return self._free_at_s - now_s
