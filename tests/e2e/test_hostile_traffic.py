"""Hostile traffic beside everybody else's: nobody fails who did nothing wrong. In full: benchmarks/hostile.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.engine import installed_engine
from harness.hostile_traffic import withstand
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.tiny_model import Shelf, tiny_weights

pytestmark = pytest.mark.registry


@pytest.fixture
def fleet(tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    registry = OciRegistry(tmp_path / "registry")
    running = Cluster(tmp_path, nats, None, registry=registry)
    yield running
    running.stop()
    registry.stop()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    running = Shelf(tiny_weights(tmp_path).read_bytes())
    yield running
    running.close()


def test_hostile_traffic_harms_nobody_else(
    fleet: Cluster, shelf: Shelf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    engine = installed_engine(tmp_path_factory)
    witness = withstand(fleet, engine, shelf, for_s=12, idle=2000, per_s=50, nodes=3)
    assert not witness.failures, witness.told() + str(witness.failures[:5])
    assert not witness.unhealthy, witness.told()
    assert witness.calls.sent == 12 * 50, witness.told()
    assert witness.reports_sent > 50, witness.told()
    assert witness.grown_mb < 100, witness.told()
    log = fleet.frontends["a"].output()
    assert "Traceback" not in log, log[-10_000:]
    assert "crashed" not in log, log[-10_000:]
