"""How fast an image of about 1 GB becomes an installed backend, against skopeo and umoci in the same run.

    python benchmarks/artifacts_install.py [--rounds 5] [--dir DIR] [--scale 1.0]

Needs Debian's docker-registry, skopeo and umoci. Every round uses fresh directories and nothing is deleted until the
end: on ext4 without a journal, creating files is slow for minutes after many were deleted, which punishes whoever comes
next (give `--dir` a filesystem of its own where others delete much). Prints a table, and exits with 1 when a ratio that
Corral promises is missed.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20
RSS_LIMIT_BYTES = 200 * 1000 * 1000

INSTALL = """
import json, resource, sys
from pathlib import Path
import structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
from corral.artifacts.cancel import CancelToken
from corral.artifacts.requests import BackendRequest
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.settings import ArtifactSettings, NetworkPolicy
from corral.artifacts.wiring import build_installer
from corral.system import SystemClock, SystemIds
data_dir, uri = sys.argv[1:]
settings = ArtifactSettings(data_dir=Path(data_dir), network=NetworkPolicy(trusted_hosts=frozenset({"127.0.0.1"})))
installer = build_installer(settings, clock=SystemClock(), ids=SystemIds())
before = set(installer.layers.stored_keys())
meter = ProgressMeter(None, SystemClock())
version = installer.install(BackendRequest(name="bench", uris=(uri,)), CancelToken(), meter)
new = set(installer.layers.stored_keys()) - before
installer.staging.close()
# Not getrusage: its peak is inherited from the process that started this one, which has just built an image.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
rss = int(peak.split()[1]) * 1024
# And its child, by an upper bound: what a child has before it becomes another program counts too.
rss += resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps({"rss": rss, "unpacked_layers": len(new), "path": str(version.path)}))
"""


@dataclass
class Maker:
    """Writes an OCI layout with reproducible content."""

    root: Path
    scale: float

    def __post_init__(self) -> None:
        self._random = random.Random(20260801)
        self._words = [self._random.randbytes(4).hex().encode()[: self._random.randint(3, 8)] for _ in range(5000)]
        (self.root / "blobs" / "sha256").mkdir(parents=True)

    def text(self, size: int) -> bytes:
        out = bytearray()
        while len(out) < size:
            out += b" ".join(self._random.choices(self._words, k=min(50_000, size // 4 + 1))) + b"\n"
        return bytes(out[:size])

    def noise(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def put(self, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (self.root / "blobs" / "sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def layer(self, files: Iterator[tuple[str, bytes]]) -> tuple[str, dict[str, object], int]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, data in files:
                info = tarfile.TarInfo(name)
                info.size, info.mtime, info.mode = len(data), 1_700_000_000, 0o755
                archive.addfile(info, io.BytesIO(data))
        raw = buffer.getvalue()
        facts = self.put(gzip.compress(raw, compresslevel=6, mtime=0))
        facts["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip"
        return f"sha256:{hashlib.sha256(raw).hexdigest()}", facts, len(raw)

    def image(self, tag: str, layers: list[tuple[str, dict[str, object], int]]) -> dict[str, object]:
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
        config = {"os": "linux", "architecture": architecture, "config": {}}
        config["rootfs"] = {"type": "layers", "diff_ids": [layer[0] for layer in layers]}
        facts = self.put(json.dumps(config).encode())
        facts["mediaType"] = "application/vnd.oci.image.config.v1+json"
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": kind, "config": facts, "layers": [layer[1] for layer in layers]}
        named = {"org.opencontainers.image.ref.name": tag}
        return {**self.put(json.dumps(manifest).encode()), "mediaType": kind, "annotations": named}

    def build(self) -> tuple[int, int]:
        """Two images of six layers that differ in the last one. Returns unpacked bytes and the last layer's size."""
        size = lambda mib: int(mib * MIB * self.scale)  # noqa: E731
        layers = [
            self.layer(iter([("run.sh", b"#!/bin/sh\n"), *((f"text/{i}", self.text(size(16))) for i in range(12))])),
            self.layer((f"noise/{i}", self.noise(size(64))) for i in range(4)),
            self.layer((f"small/{i // 500}/{i}.py", self.text(3000)) for i in range(int(29_000 * self.scale))),
            self.layer((f"lib/{i}.so", self.text(size(32))) for i in range(6)),
            self.layer((f"mixed/{i}", self.noise(size(12)) + self.text(size(20))) for i in range(6)),
        ]
        last = [self.layer(iter([("app", self.text(size(24)) + self.noise(size(8)))])) for _ in range(2)]
        manifests = [self.image(tag, [*layers, top]) for tag, top in zip(("one", "two"), last, strict=True)]
        (self.root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
        (self.root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        return sum(layer[2] for layer in [*layers, last[0]]), int(str(last[1][1]["size"]))


@contextmanager
def registry(home: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = home / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {home / 'registry'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 0.1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


class Took(NamedTuple):
    """On a machine with other users the processor time says more than the clock."""

    seconds: float
    cpu_s: float


@contextmanager
def timed(into: list[Took]) -> Iterator[None]:
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    into.append(Took(time.monotonic() - started, cpu_s))


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def as_installed(home: Path) -> dict[str, str]:
    """An environment in which Corral's modules are compiled, as those of an installation are, whatever the caller's
    environment says of writing bytecode."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(home / "bytecode")
    subprocess.run([sys.executable, "-c", "import corral.artifacts"], check=True, env=environment)
    return environment


def corral(data_dir: Path, uri: str, into: list[Took], environment: dict[str, str]) -> dict[str, int]:
    with timed(into):
        done = subprocess.run(
            [sys.executable, "-c", INSTALL, str(data_dir), uri],
            check=True,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    facts: dict[str, int] = json.loads(done.stdout)
    return facts


def peer(home: Path, host: str, into: list[Took], *unpack: str) -> None:
    home.mkdir()
    with timed(into):
        run("skopeo", "copy", "-q", "--src-tls-verify=false", f"docker://{host}/bench:one", f"oci:{home}/image:one")
        run("umoci", *unpack, "--rootless", "--image", f"{home}/image:one", f"{home}/unpacked")


def measure(home: Path, rounds: int, scale: float) -> int:
    unpacked, last_layer = Maker(home / "layout", scale).build()
    times: dict[str, list[Took]] = {"corral": [], "umoci unpack": [], "umoci raw unpack": [], "upgrade": []}
    rss = 0
    environment = as_installed(home)
    with registry(home) as host:
        for tag in ("one", "two"):
            run(
                "skopeo",
                "copy",
                "-q",
                "--dest-tls-verify=false",
                f"oci:{home}/layout:{tag}",
                f"docker://{host}/bench:{tag}",
            )
        for number in range(rounds):
            contestants: list[Callable[[], None]] = []

            def ours(number: int = number) -> None:
                nonlocal rss
                data_dir = home / f"corral-{number}"
                facts = corral(data_dir, f"{host}/bench:one", times["corral"], environment)
                rss = max(rss, facts["rss"])
                facts = corral(data_dir, f"{host}/bench:two", times["upgrade"], environment)
                assert facts["unpacked_layers"] == 1, "an upgrade of one layer unpacked others again"
                fetched = sum(path.stat().st_size for path in (data_dir / "blobs" / "sha256").iterdir())
                first = sum(path.stat().st_size for path in (home / "layout/blobs/sha256").iterdir())
                assert fetched <= first, "more was fetched than both images hold"

            def full(number: int = number) -> None:
                peer(home / f"full-{number}", host, times["umoci unpack"], "unpack")

            def raw(number: int = number) -> None:
                peer(home / f"raw-{number}", host, times["umoci raw unpack"], "raw", "unpack")

            contestants = [ours, full, raw]
            for contestant in contestants[number % 3 :] + contestants[: number % 3]:
                os.sync()  # corral flushes what it wrote; it should not pay for what the one before it left
                contestant()
    return report(times, rss, unpacked, last_layer)


def report(times: dict[str, list[Took]], rss: int, unpacked: int, last_layer: int) -> int:
    median = {name: statistics.median(took.seconds for took in values) for name, values in times.items()}
    rows = [
        ("corral, full install", median["corral"], ""),
        (
            "skopeo copy + umoci unpack",
            median["umoci unpack"],
            f"{median['corral'] / median['umoci unpack']:.2f} <= 0.33",
        ),
        (
            "skopeo copy + umoci raw unpack",
            median["umoci raw unpack"],
            f"{median['corral'] / median['umoci raw unpack']:.2f} <= 0.50",
        ),
        ("corral, one layer changed", median["upgrade"], f"{median['upgrade'] / median['corral']:.2f} < 0.25"),
    ]
    print(f"{unpacked / MIB:,.0f} MiB unpacked in 6 layers; the changed layer has {last_layer / MIB:,.1f} MiB packed")
    print(f"{'':34}{'median s':>9}{'cpu s':>7}   {'ratio and limit':18} runs")
    names = ("corral", "umoci unpack", "umoci raw unpack", "upgrade")
    for (label, seconds, ratio), name in zip(rows, names, strict=True):
        cpu_s = statistics.median(took.cpu_s for took in times[name])
        runs = " ".join(f"{took.seconds:.1f}" for took in times[name])
        print(f"{label:34}{seconds:9.2f}{cpu_s:7.1f}   {ratio:18} {runs}")
    print(f"{'corral, peak memory':34}{rss / 1e6:9.0f} MB < {RSS_LIMIT_BYTES / 1e6:.0f}")
    kept = (
        median["corral"] <= median["umoci unpack"] / 3
        and median["corral"] <= median["umoci raw unpack"] / 2
        and median["upgrade"] < median["corral"] / 4
        and rss < RSS_LIMIT_BYTES
    )
    print("every promise kept" if kept else "A PROMISE IS MISSED")
    return 0 if kept else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the image; 1.0 is about 1 GB")
    parser.add_argument("--dir", type=Path, default=None, help="where to work; about 6 GB per round")
    options = parser.parse_args()
    for tool in ("docker-registry", "skopeo", "umoci"):
        if shutil.which(tool) is None:
            print(f"{tool} is missing; install Debian's docker-registry, skopeo and umoci")
            return 2
    home = Path(tempfile.mkdtemp(prefix="corral-bench-", dir=options.dir))
    try:
        return measure(home, options.rounds, options.scale)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    sys.exit(main())
