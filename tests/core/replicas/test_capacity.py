"""The free capacity of a node: what it reports, less reservations, within its memory budget."""

from typing import Any

import pytest

from core.replicas.test_availability import node
from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.nodes.node import NodeType
from corral.core.replicas.capacity import Reservation, device_class, free_memory, node_capacity
from corral.core.replicas.placement import GIB, HeldReplica

GPU = {"gpu_vendor": "nvidia", "total_vram": 24 * GIB, "available_vram": 20 * GIB}
RAM = {"total_ram": 64 * GIB, "available_ram": 40 * GIB}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, "cpu", id="a-node-without-a-gpu"),
        pytest.param(GPU, "nvidia", id="a-node-with-a-gpu"),
        pytest.param({"gpu_vendor": "nvidia"}, "cpu", id="a-gpu-whose-memory-is-unknown-cannot-be-planned-with"),
        pytest.param({"gpu_vendor": "intel", "total_vram": 0}, "cpu", id="nor-can-one-without-memory"),
    ],
)
def test_device_class(fields: dict[str, Any], expected: str) -> None:
    assert device_class(node(**fields)) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({**RAM}, 40 * GIB, id="ram-of-a-node-without-a-gpu"),
        pytest.param({**RAM, **GPU}, 20 * GIB, id="gpu-memory-of-a-node-with-one"),
        pytest.param({}, None, id="memory-that-is-not-reported-is-unknown"),
        pytest.param({**GPU, "vram_budget_override": "50%"}, 8 * GIB, id="a-budget-limits-what-is-used-in-total"),
        pytest.param({**GPU, "vram_budget_override": "100%"}, 20 * GIB, id="a-budget-of-everything-limits-nothing"),
        pytest.param({**GPU, "vram_budget_override": "2GiB"}, -2 * GIB, id="a-budget-may-be-exceeded-already"),
        pytest.param({**RAM, "vram_budget_reported": "32GiB"}, 8 * GIB, id="a-budget-applies-to-ram-without-a-gpu"),
        pytest.param(
            {**GPU, "vram_budget_reported": "2GiB", "vram_budget_override": "50%"},
            8 * GIB,
            id="an-administrators-budget-overrides-that-of-the-worker",
        ),
        pytest.param({**GPU, "vram_budget_reported": "lots"}, 20 * GIB, id="an-invalid-budget-of-a-worker-is-ignored"),
        pytest.param(
            {"available_ram": 40 * GIB, "vram_budget_override": "50%"}, 40 * GIB, id="a-budget-needs-a-known-total"
        ),
    ],
)
def test_free_memory(fields: dict[str, Any], expected: int | None) -> None:
    assert free_memory(node(**fields)) == expected


@pytest.mark.parametrize(
    ("fields", "reservations", "expected"),
    [
        pytest.param({**RAM, "available_disk": 9 * GIB}, [], (40 * GIB, 9 * GIB), id="what-it-reports"),
        pytest.param(
            {**RAM, "available_disk": 9 * GIB},
            [Reservation(memory_bytes=GIB, disk_bytes=2 * GIB), Reservation(memory_bytes=3 * GIB)],
            (36 * GIB, 7 * GIB),
            id="less-all-reservations",
        ),
        pytest.param(
            {**RAM, "available_disk": GIB}, [Reservation(disk_bytes=2 * GIB)], (40 * GIB, -GIB), id="which-may-be-more"
        ),
        pytest.param({}, [Reservation(memory_bytes=GIB, disk_bytes=GIB)], (None, None), id="unknown-stays-unknown"),
    ],
)
def test_reservations_are_deducted(
    fields: dict[str, Any], reservations: list[Reservation], expected: tuple[int | None, int | None]
) -> None:
    capacity = node_capacity(node(**fields), (), reservations)
    assert (capacity.free_memory, capacity.free_disk) == expected


def test_the_capacity_has_all_that_placement_reads() -> None:
    held = (HeldReplica(id="1", model="m", slot=0, in_flight=2), HeldReplica(id="2", model="x", slot=0, in_flight=3))
    capacity = node_capacity(
        node("n1", **GPU, max_replicas_reported=1, max_replicas_override=4, capability="cuda"), held
    )
    assert (capacity.id, capacity.name, capacity.device, capacity.capability) == ("n1", "n1", "nvidia", "cuda")
    assert (capacity.slots_per_model, capacity.replicas, capacity.in_flight) == (4, held, 5)
    assert capacity.labels["gpu.vendor"] == "nvidia"
    assert capacity.takes_backends


def test_an_agent_takes_no_backends() -> None:
    assert not node_capacity(node(node_type=NodeType.AGENT)).takes_backends


def test_disk_pressure_is_kept_apart_from_other_conditions() -> None:
    """A node with disk pressure can still start what is on its disk."""
    full = Condition(kind=ConditionKind.DISK_PRESSURE, reason="its disk is full", remedy="")
    skewed = Condition(kind=ConditionKind.CLOCK_SKEW, reason="its clock is off", remedy="")
    capacity = node_capacity(node(conditions=(full, skewed)))
    assert (capacity.conditions, capacity.low_disk) == (("its clock is off",), "its disk is full")
