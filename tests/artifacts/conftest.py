"""Shared fixtures: a data directory, an installer that trusts loopback, and servers that end with the test."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # pytest's importlib mode leaves test directories off the path

from artifact_support import FakeRegistry, fast_settings

from corral.artifacts.install import Installer
from corral.artifacts.oci import OciPlatform
from corral.artifacts.settings import ArtifactSettings
from corral.artifacts.workshop import build_installer
from corral.system import SystemClock, SystemIds

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
