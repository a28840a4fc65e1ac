"""A cluster of real processes, on each database, and a model small enough to be loaded in a moment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.databases import BOTH
from harness.engine import installed_engine
from harness.engine_gallery import EngineGallery
from harness.nats import Nats
from harness.proxy import ProxyThread
from harness.tiny_model import Shelf, tiny_weights


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_engine(tmp_path_factory)


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, nats: Nats, engine: Path) -> Iterator[Cluster]:
    store = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    running = Cluster(tmp_path, nats, store, engine=engine)
    yield running
    running.stop()


@pytest.fixture(params=BOTH)
def cluster_without_engine(request: pytest.FixtureRequest, tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    """For backends that the test itself installs."""
    store = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    running = Cluster(tmp_path, nats, store)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """Where the tiny model's weights are fetched from."""
    running = Shelf(tiny_weights(tmp_path_factory.mktemp("tiny")).read_bytes())
    yield running
    running.close()


@pytest.fixture
def lines(cluster: Cluster) -> Iterator[dict[str, ProxyThread]]:
    """All that leads from one worker to the fleet."""
    cluster.start_frontend()
    port = int(cluster.admin().url.rpartition(":")[2])
    running = {"http": ProxyThread(port), "bus": ProxyThread(cluster.nats.port)}
    cluster.frontends["a"].stop()
    yield running
    for line in running.values():
        line.stop()


@pytest.fixture
def gallery() -> Iterator[EngineGallery]:
    running = EngineGallery()
    yield running
    running.close()
