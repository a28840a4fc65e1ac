"""Shared fixtures: a data directory, an installer that trusts loopback, and servers that end with the test."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.artifacts.install.installer import Installer
from corral.artifacts.oci.image import OciPlatform
from corral.artifacts.settings import ArtifactSettings
from corral.artifacts.wiring import build_installer
from corral.system import SystemClock, SystemIds
from harness.artifacts import FakeRegistry, fast_settings, wait_until
from harness.ports import free_port

AMD64 = OciPlatform(os="linux", architecture="amd64")


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """In memory where there is such a place: each install flushes its filesystem, and a disk has other users."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as made:
        yield Path(made) / "data"


@pytest.fixture
def settings(data_dir: Path) -> ArtifactSettings:
    return fast_settings(data_dir)


@pytest.fixture
def make_installer(settings: ArtifactSettings) -> Iterator[Callable[..., Installer]]:
    made: list[Installer] = []

    def make(**changes: Any) -> Installer:
        installer = build_installer(replace(settings, **changes), clock=SystemClock(), ids=SystemIds(), platform=AMD64)
        made.append(installer)
        return installer

    yield make
    for installer in made:
        installer.staging.close()
        installer.resolver.outbound.close()


@pytest.fixture
def installer(make_installer: Callable[..., Installer]) -> Installer:
    return make_installer()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        yield running


@pytest.fixture
def real_registry(tmp_path: Path) -> Iterator[str]:
    """Debian's docker-registry, empty."""
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry missing")
    port = free_port()
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/registry}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def listening() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listening)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
