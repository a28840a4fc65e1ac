"""Small parts the tests share: archives, images, and a registry that can misbehave."""

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.manifest import Manifest, encode_manifest
from corral.artifacts.content.versions import InstalledVersion
from corral.artifacts.digests import Digest
from corral.artifacts.install.installer import Installer
from corral.artifacts.progress import OnProgress, ProgressMeter
from corral.artifacts.requests import BackendRequest
from corral.artifacts.settings import ArtifactSettings, NetworkPolicy, Peer, TransferLimits
from corral.artifacts.signatures import SignaturePolicy
from corral.core.backends.build import BuildRef
from corral.system import SystemClock

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


def fast_settings(data_dir: Path) -> ArtifactSettings:
    """As in production, but patient for milliseconds only."""
    return ArtifactSettings(
        data_dir=data_dir,
        network=NetworkPolicy(trusted_hosts=frozenset({"127.0.0.1", "localhost"})),
        transfer=TransferLimits(
            connect_s=2.0, headers_s=1.0, stall_window_s=1.0, stall_bytes=1024, attempts=3, retry_base_s=0.01
        ),
        disk_reserve_bytes=1 << 20,
    )


def sha256(data: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mtime = 1_700_000_000
    info.mode = 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar_of(*members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def files_layer(files: Mapping[str, bytes]) -> bytes:
    return tar_of(*(member(name, data, mode=0o755 if name.endswith(".sh") else 0o644) for name, data in files.items()))


@dataclass
class Image:
    """An image in memory. Every document can be bent before it is served."""

    layers: list[bytes]
    """Uncompressed tars."""
    compress: Callable[[bytes], bytes] = lambda raw: gzip.compress(raw, compresslevel=1, mtime=0)
    media_type: str = LAYER
    platform: tuple[str, str] = ("linux", "amd64")
    edit_manifest: Callable[[dict[str, Any]], None] = lambda manifest: None
    edit_config: Callable[[dict[str, Any]], None] = lambda config: None
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes = b""

    def build(self) -> Self:
        packed = [self.compress(layer) for layer in self.layers]
        config: dict[str, Any] = {
            "os": self.platform[0],
            "architecture": self.platform[1],
            "rootfs": {"type": "layers", "diff_ids": [sha256(layer) for layer in self.layers]},
        }
        self.edit_config(config)
        config_bytes = json.dumps(config).encode()
        manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": sha256(config_bytes), "size": len(config_bytes)},
            "layers": [{"mediaType": self.media_type, "digest": sha256(blob), "size": len(blob)} for blob in packed],
        }
        self.edit_manifest(manifest)
        self.manifest = json.dumps(manifest).encode()
        self.blobs = {sha256(blob): blob for blob in [config_bytes, *packed]}
        return self

    @property
    def digest(self) -> str:
        return sha256(self.manifest)

    def layer_digests(self) -> list[Digest]:
        return [Digest(layer["digest"]) for layer in json.loads(self.manifest)["layers"]]


def push_to(host: str, repository: str, tag: str, manifest: bytes, blobs: Mapping[str, bytes]) -> str:
    """Into a real registry, as any client does it."""
    base = f"http://{host}/v2/{repository}"

    def send(method: str, url: str, body: bytes, kind: str) -> str:
        request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=40) as answer:
            return str(answer.headers.get("Location", ""))

    for digest, data in blobs.items():
        place = send("POST", f"{base}/blobs/uploads/", b"", "application/octet-stream")
        send("PUT", f"{place}&digest={digest}", data, "application/octet-stream")
    send("PUT", f"{base}/manifests/{tag}", manifest, MANIFEST)
    return f"{host}/{repository}:{tag}"


class Reply(Exception):
    """Raised by a hook to answer with something else."""

    def __init__(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = dict(headers or {})


Hook = Callable[["Exchange"], None]


class Exchange(http.server.BaseHTTPRequestHandler):
    """One request. Hooks may raise Reply, or write to the socket themselves."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        registry = self.server.registry
        with registry.lock:
            registry.requests.append((self.command, self.path, dict(self.headers.items())))
        try:
            for hook in registry.hooks:
                hook(self)
            status, body, headers = registry.answer(self)
        except Reply as reply:
            status, body, headers = reply.status, reply.body, reply.headers
        except (BrokenPipeError, ConnectionResetError):
            return
        self.reply(status, body, headers)

    do_HEAD = do_GET

    def reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    registry: "FakeRegistry"

    def handle_error(self, request: Any, client_address: Any) -> None:
        return


class FakeRegistry:
    """A registry, and any other HTTP server, on loopback. Keeps every request it saw."""

    def __init__(self) -> None:
        self.manifests: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.blobs: dict[str, bytes] = {}
        self.pages: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.hooks: list[Hook] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), Exchange)
        self._server.registry = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def push(self, image: Image, repository: str = "backend", tag: str = "latest") -> str:
        image.build()
        self.manifests[repository, tag] = self.manifests[repository, image.digest] = (image.manifest, MANIFEST)
        self.blobs |= image.blobs
        return f"{self.host}/{repository}:{tag}"

    def push_index(self, images: list[Image], repository: str = "backend", tag: str = "latest") -> str:
        for image in images:
            self.push(image, repository, f"only-{image.platform[1]}")
        index = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": INDEX,
                "manifests": [
                    {
                        "mediaType": MANIFEST,
                        "digest": image.digest,
                        "size": len(image.manifest),
                        "platform": {"os": image.platform[0], "architecture": image.platform[1]},
                    }
                    for image in images
                ],
            }
        ).encode()
        self.manifests[repository, tag] = self.manifests[repository, sha256(index)] = (index, INDEX)
        return f"{self.host}/{repository}:{tag}"

    def answer(self, exchange: Exchange) -> tuple[int, bytes, dict[str, str]]:
        path = exchange.path.partition("?")[0]
        if path in self.pages:
            body, headers = self.pages[path]
            return self._ranged(exchange, body, headers)
        repository, _, tail = path.removeprefix("/v2/").partition("/manifests/")
        if tail:
            found = self.manifests.get((repository, tail))
            if found is None:
                return 404, b"{}", {}
            return 200, found[0], {"Content-Type": found[1], "Docker-Content-Digest": sha256(found[0])}
        _, _, digest = path.partition("/blobs/")
        if digest in self.blobs:
            return self._ranged(exchange, self.blobs[digest], {})
        return 404, b"{}", {}

    def _ranged(self, exchange: Exchange, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
        wanted = exchange.headers.get("Range", "")
        if not wanted.startswith("bytes="):
            return 200, body, dict(headers)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), int(last) + 1 if last else len(body)
        if start >= len(body):
            return 416, b"", {**headers, "Content-Range": f"bytes */{len(body)}"}
        part = body[start:end]
        return 206, part, {**headers, "Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(body)}"}

    def blob_requests(self, digest: str) -> list[str]:
        """The Range header of every GET of one blob, `` for none."""
        return [
            headers.get("Range", "")
            for method, path, headers in self.requests
            if method == "GET" and path.endswith(digest)
        ]


def once(hook: Hook) -> Hook:
    return times(1, hook)


def times(count: int, hook: Hook) -> Hook:
    """Applies the hook to the first `count` requests it does not let pass."""
    left = [count]

    def limited(exchange: Exchange) -> None:
        if left[0] > 0:
            try:
                hook(exchange)
            except BaseException:
                left[0] -= 1
                raise

    return limited


def install(
    installer: Installer,
    *uris: str,
    name: str = "demo",
    cancel: CancelToken | None = None,
    on_progress: OnProgress | None = None,
    manifest: Manifest | None = None,
    signatures: SignaturePolicy | None = None,
    peers: tuple[Peer, ...] = (),
    **build: str,
) -> InstalledVersion:
    ref = BuildRef(name=name, uris=uris, manifest=encode_manifest(manifest), **build)
    request = BackendRequest(build=ref, signatures=signatures, peers=peers)
    return installer.install(request, cancel or CancelToken(), ProgressMeter(on_progress, SystemClock(), every_s=0.0))


def tree_of(root: Path) -> dict[str, bytes | str]:
    """Every file's content and every link's target below a directory, without Corral's own metadata."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file() and name != "metadata.json":
            found[name] = path.read_bytes()
    return found


def leftovers(data_dir: Path) -> list[str]:
    """What an install that failed must not leave: blobs, partials, layers, versions, staged trees."""
    kept = []
    for area in ("blobs/sha256", "blobs/partial", "layers", "backends"):
        root = data_dir / area
        kept += [f"{area}/{path.name}" for path in root.iterdir() if not path.name.startswith(".")]
    staging = data_dir / "staging"
    for corner in staging.iterdir():
        kept += [f"staging/{path.name}" for path in corner.iterdir() if path.name != ".lock"]
    return kept


def wait_until(true: Callable[[], bool], within_s: float = 40.0) -> None:
    """Polls a fact that another thread or process brings about; fails instead of hanging."""
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.005)
