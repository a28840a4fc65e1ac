"""kill -9 at random points of every phase: the next start finishes, never mixed, and fetches nothing twice."""

import json
import os
import random
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.artifacts.oci.image import OciPlatform
from corral.artifacts.unpack.small_files import BATCH_FILES
from corral.artifacts.unpack.tree import FEW_FILES
from corral.artifacts.wiring import build_installer
from corral.system import SystemClock, SystemIds
from harness.artifacts import FakeRegistry, Image, fast_settings, files_layer, install, leftovers, tree_of

POINTS = 50
SPREAD_POINTS = 20
RUN = b"#!/bin/sh\n"
SIGKILLED = -9

Crash = Callable[[str, int, Path, str], int]


@pytest.fixture(scope="module")
def crash() -> Iterator[Crash]:
    """Runs one install in a forked child that dies at the asked point; returns its exit status."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    zygote = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("crash_child.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert zygote.stdin is not None
    assert zygote.stdout is not None

    def run(phase: str, at: int, data_dir: Path, uri: str) -> int:
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        zygote.stdin.write(json.dumps({"phase": phase, "at": at, "data_dir": str(data_dir), "uri": uri}) + "\n")
        zygote.stdin.flush()
        assert select.select([zygote.stdout], [], [], 60)[0], f"point {at} of {phase} hangs"
        return int(zygote.stdout.readline())

    yield run
    zygote.stdin.close()
    assert zygote.wait(timeout=20) == 0
    zygote.stdout.close()


def images() -> tuple[Image, Image]:
    base = files_layer({"run.sh": RUN, **{f"lib/{i}": bytes([i]) * 2000 for i in range(20)}})
    noise = random.Random(7)
    old = Image([base, files_layer({"app": b"old", "weights": noise.randbytes(300_000)})])
    new = Image(
        [base, files_layer({"app": b"new", "weights": noise.randbytes(1_500_000)}), files_layer({"more/x": b"x"})]
    )
    return old, new


@pytest.mark.parametrize("phase", ["download", "verify", "extract", "switch"])
def test_killed_at_random_points_the_next_start_finishes_with_old_or_new(
    phase: str, crash: Crash, registry: FakeRegistry, data_dir: Path
) -> None:
    old, new = images()
    old_uri, new_uri = registry.push(old, tag="old"), registry.push(new, tag="new")
    prepared = data_dir.parent / "prepared"
    assert crash("none", 0, prepared, old_uri) == 0
    shutil.copytree(prepared, data_dir, symlinks=True)
    assert crash(phase, -1, data_dir, new_uri) == 0
    calls = int((data_dir / "calls").read_text())
    assert calls > 3, f"the phase {phase} was never seen"
    expected_old, expected_new = _content(prepared, "demo"), _content(data_dir, "demo")
    assert expected_old != expected_new
    draw = random.Random(f"corral {phase}")
    killed = 0
    for _ in range(4 * POINTS):  # how many calls fall into a phase depends on which layer is ahead, so some points miss
        at = draw.randint(1, calls)
        shutil.rmtree(data_dir)
        _restore(prepared, data_dir)
        status = crash(phase, at, data_dir, new_uri)
        assert status in (0, SIGKILLED), f"point {at}: exit {status}"
        killed += status == SIGKILLED
        assert _content(data_dir, "demo") in (expected_old, expected_new), f"point {at} left a mixture"
        _finish_and_check(registry, data_dir, new, new_uri, expected_new, at)
        if killed == POINTS:
            return
    pytest.fail(f"only {killed} of {4 * POINTS} points hit")


def test_killed_while_a_damaged_version_is_rebuilt(crash: Crash, registry: FakeRegistry, data_dir: Path) -> None:
    _, new = images()
    uri = registry.push(new)
    prepared = data_dir.parent / "prepared"
    assert crash("none", 0, prepared, uri) == 0
    whole = _content(prepared, "demo")
    weights = (prepared / "backends/demo/current").resolve() / "weights"
    weights.chmod(0o644)
    with weights.open("r+b") as file:
        file.write(b"damage")
    damaged = _content(prepared, "demo")
    _restore(prepared, data_dir)
    assert crash("rebuild", -1, data_dir, uri) == 0
    calls = int((data_dir / "calls").read_text())
    assert _content(data_dir, "demo") == whole
    killed = 0
    for at in _spread(1, calls, SPREAD_POINTS):
        shutil.rmtree(data_dir)
        _restore(prepared, data_dir)
        killed += crash("rebuild", at, data_dir, uri) == SIGKILLED
        assert _content(data_dir, "demo") in (damaged, whole), f"point {at} left a mixture"
        assert crash("rebuild", -1, data_dir, uri) == 0
        assert _content(data_dir, "demo") == whole, f"point {at}"
    assert killed > SPREAD_POINTS * 0.8


def test_killed_while_a_child_writes_small_files(crash: Crash, registry: FakeRegistry, data_dir: Path) -> None:
    small = {f"lib/{i % 5}/{i}": bytes([i % 256]) * 50 for i in range(FEW_FILES + 16 * BATCH_FILES)}
    image = Image([files_layer({"run.sh": RUN, **small})])
    uri = registry.push(image)
    assert crash("extract", -1, data_dir, uri) == 0
    calls = int((data_dir / "calls").read_text())
    expected = _content(data_dir, "demo")
    for at in _spread(calls // 3, calls, SPREAD_POINTS // 2):
        shutil.rmtree(data_dir)
        assert crash("extract", at, data_dir, uri) in (0, SIGKILLED)
        assert not (data_dir / "backends/demo/current").exists() or _content(data_dir, "demo") == expected
        _finish_and_check(registry, data_dir, image, uri, expected, at)


def _spread(first: int, last: int, count: int) -> list[int]:
    """Points that are random and still leave no stretch out: one in each of `count` equal parts."""
    draw = random.Random("corral points")
    return [first + int((part + draw.random()) * (last - first + 1) / count) for part in range(count)]


def _restore(prepared: Path, data_dir: Path) -> None:
    """A copy whose layers and versions still share their files, as hard links do."""
    subprocess.run(["cp", "-a", str(prepared), str(data_dir)], check=True)


def _content(data_dir: Path, name: str) -> dict[str, bytes | str]:
    return tree_of((data_dir / "backends" / name / "current").resolve())


def _finish_and_check(
    registry: FakeRegistry, data_dir: Path, image: Image, uri: str, expected: dict[str, bytes | str], at: int
) -> None:
    partials = {path.name: path.stat().st_size for path in (data_dir / "blobs" / "partial").iterdir()}
    whole = {path.name for path in (data_dir / "blobs" / "sha256").iterdir()}
    unpacked = {path.name for path in (data_dir / "layers").iterdir() if not path.name.startswith(".")}
    registry.requests.clear()
    installer = build_installer(
        fast_settings(data_dir),
        clock=SystemClock(),
        ids=SystemIds(),
        platform=OciPlatform(os="linux", architecture="amd64"),
    )
    try:
        installer.staging.sweep()
        installer.versions.sweep()
        version = install(installer, uri)
        assert version.digest == image.digest, f"point {at}"
        assert _content(data_dir, "demo") == expected, f"point {at}"
        _check_fetches(registry, image, partials, whole | unpacked, at)
        strays = [name for name in leftovers(data_dir) if name.startswith(("staging/", "blobs/partial/"))]
        assert strays == [], f"point {at}"
        assert sorted(path.name for path in version.path.parent.iterdir() if path.name.startswith(".")) == []
    finally:
        installer.staging.close()
        installer.resolver.outbound.close()


def _check_fetches(registry: FakeRegistry, image: Image, partials: dict[str, int], present: set[str], at: int) -> None:
    """Bytes that were on disk when the process died are not asked for again."""
    for digest in image.layer_digests():
        asked = registry.blob_requests(digest)
        name = digest.removeprefix("sha256:")
        if name in present:
            assert asked == [], f"point {at}: a whole blob was fetched again"
        elif asked and partials.get(name):
            assert asked == [f"bytes={partials[name]}-"], f"point {at}: {asked} with {partials[name]} bytes on disk"
