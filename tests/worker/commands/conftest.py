"""A worker that has joined, and a registry to install from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.single_worker import SingleWorker


@pytest.fixture
def worker(tmp_path: Path, nats: Nats) -> Iterator[SingleWorker]:
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends")
    yield worker
    left = worker.close()
    assert not left, f"processes {left} were left behind:\n{worker.program.output()[-4000:]}"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[OciRegistry]:
    registry = OciRegistry(tmp_path / "registry")
    yield registry
    registry.stop()
