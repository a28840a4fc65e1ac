"""Which version a node gets that joins after a rollback of the fleet."""

import pytest

from core.backends.test_drift import NEW, OLD, machine
from corral.core.backends.build import BuildRef
from corral.core.backends.intents import BackendSpec
from corral.core.backends.version_holds import VersionHold, hold_for
from corral.core.nodes.node import Node


def hold(digest: str, generation: int, build: str = "cpu-echo", **selector: str) -> VersionHold:
    spec = BackendSpec(reference="echo", build=BuildRef(name=build, digest=digest), rolled_back_from=(NEW,))
    return VersionHold(backend="echo", selector=selector, spec=spec, generation=generation, operation_id="o")


FAST = machine(worker_labels={"tier": "fast"})


@pytest.mark.parametrize(
    ("node", "holds", "digest"),
    [
        pytest.param(FAST, [], None, id="none"),
        pytest.param(FAST, [hold(OLD, 1)], OLD, id="for-every-node"),
        pytest.param(FAST, [hold(OLD, 1, build="cuda-echo")], None, id="of-another-build"),
        pytest.param(FAST, [hold(OLD, 1, tier="fast")], OLD, id="a-selector-that-matches"),
        pytest.param(machine(), [hold(OLD, 1, tier="fast")], None, id="one-that-does-not"),
        pytest.param(FAST, [hold("older", 2), hold(OLD, 1)], "older", id="the-newest"),
        pytest.param(machine(), [hold("older", 2, tier="fast"), hold(OLD, 1)], OLD, id="the-newest-that-matches"),
        pytest.param(machine(approved=False), [hold(OLD, 1)], None, id="a-pending-node-gets-nothing"),
    ],
)
def test_hold_for(node: Node, holds: list[VersionHold], digest: str | None) -> None:
    spec = hold_for(node, "cpu-echo", holds)
    assert (spec.build.digest if spec is not None else None) == digest
