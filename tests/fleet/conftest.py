"""A fleet of real processes on each database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.nats import Nats
from harness.oci_registry import OciRegistry


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path / 'shared.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[OciRegistry]:
    registry = OciRegistry(tmp_path / "registry")
    yield registry
    registry.stop()


@pytest.fixture
def fleet(tmp_path: Path, nats: Nats, store: str, registry: OciRegistry) -> Iterator[Cluster]:
    running = Cluster(tmp_path, nats, store, registry=registry)
    yield running
    running.stop()
