"""Hostile traffic beside everybody else's: nobody fails who did nothing wrong. In full: benchmarks/hostile.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fleet import OperationFleet
from harness.hostile_traffic import withstand
from harness.nats import Nats
from harness.oci_registry import OciRegistry

pytestmark = pytest.mark.registry


@pytest.fixture
def fleet(tmp_path: Path, nats: Nats) -> Iterator[OperationFleet]:
    registry = OciRegistry(tmp_path / "registry")
    running = OperationFleet(tmp_path, nats, None, registry)
    yield running
    running.stop()
    registry.stop()


def test_hostile_traffic_harms_nobody_else(fleet: OperationFleet) -> None:
    witness = withstand(fleet, for_s=12, idle=2000, nodes=3)
    assert not witness.failures, witness.told() + str(witness.failures[:5])
    assert not witness.unhealthy, witness.told()
    assert witness.requests > 12 * 100, witness.told()
    assert witness.reports_sent > 50, witness.told()
    assert witness.grown_mb < 100, witness.told()
    log = fleet.frontends["a"].output()
    assert "Traceback" not in log, log[-10_000:]
    assert "crashed" not in log, log[-10_000:]
