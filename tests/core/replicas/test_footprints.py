"""What is written down of the memory that processes take: the largest of each kind, and only where it grew."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.replicas.test_availability import node
from core.replicas.test_repair import ROW
from corral.core.models.load_plan import Elastic
from corral.core.nodes.node import NodeId
from corral.core.nodes.node_class import node_class
from corral.core.replicas.footprints import (
    FootprintKey,
    Peak,
    ProcessMemory,
    ReportedMemory,
    plan_peaks,
    round_fitted,
)
from corral.core.replicas.replica import Replica, ReplicaState

GIB = 1 << 30
ON_N = replace(ROW, backend_digest="d")
ON_G = replace(ON_N, id="g", node_id="g")
NODES = {"n": node(), "g": node(id=NodeId("g"), gpu_vendor="nvidia", total_vram=8 << 30)}
CPU = FootprintKey("m", "1", "d", node_class(NODES["n"]), 0, "cpu")
GPU = FootprintKey("m", "1", "d", node_class(NODES["g"]), 0, "nvidia")
PLAIN = {("m", "1"): Elastic.NOTHING}


@pytest.mark.parametrize(
    ("rows", "told", "written", "peaks"),
    [
        pytest.param([ON_N], {("n", "m#0"): ProcessMemory(5, None)}, {}, {CPU: Peak(5)}, id="first-seen"),
        pytest.param([ON_N], {("n", "m#0"): ProcessMemory(5, None)}, {CPU: Peak(5)}, {}, id="no-more-than-written"),
        pytest.param([ON_N], {("n", "m#0"): ProcessMemory(6, None)}, {CPU: Peak(5)}, {CPU: Peak(6)}, id="grown"),
        pytest.param(
            [ON_N],
            {("n", "m#0"): ProcessMemory(6, None, 32)},
            {CPU: Peak(5, 4)},
            {CPU: Peak(6, 32)},
            id="with-its-slots",
        ),
        pytest.param([ON_N], {("n", "m#0"): ProcessMemory(None, 9)}, {}, {}, id="unknown-is-not-zero"),
        pytest.param([ON_N], {("n", "m#1"): ProcessMemory(5, None)}, {}, {}, id="a-process-without-a-replica"),
        pytest.param(
            [ON_G], {("g", "m#0"): ProcessMemory(5, 9)}, {}, {GPU: Peak(9)}, id="of-the-gpus-where-there-are-some"
        ),
        pytest.param(
            [ON_N, replace(ON_N, id="s", slot=1, process_key="m#1")],
            {("n", "m#0"): ProcessMemory(5, None), ("n", "m#1"): ProcessMemory(7, None)},
            {},
            {CPU: Peak(7)},
            id="the-largest-of-several",
        ),
        pytest.param(
            [replace(ON_N, state=ReplicaState.LOADING)],
            {("n", "m#0"): ProcessMemory(5, None)},
            {},
            {},
            id="still-loading",
        ),
        pytest.param([replace(ON_N, node_id="x")], {("x", "m#0"): ProcessMemory(5, None)}, {}, {}, id="node-removed"),
    ],
)
def test_which_peaks_are_written(
    rows: list[Replica], told: ReportedMemory, written: dict[FootprintKey, Peak], peaks: dict[FootprintKey, Peak]
) -> None:
    assert plan_peaks(rows, NODES, told, stored=written, elastic=PLAIN) == peaks


def test_peaks_of_a_fitted_engine_are_kept_apart_by_the_memory_that_it_was_given() -> None:
    rows = [
        replace(ON_N, memory_bytes=4 * GIB),
        replace(ON_N, id="s", slot=1, process_key="m#1", memory_bytes=7 * GIB),
        replace(ON_N, id="t", slot=2, process_key="m#2", memory_bytes=4 * GIB + GIB // 10),
    ]
    told = {("n", f"m#{slot}"): ProcessMemory(used, None) for slot, used in enumerate((5, 9, 6))}
    peaks = plan_peaks(rows, NODES, told, stored={}, elastic={("m", "1"): Elastic.CONTEXT})
    assert {key.fitted_bytes: peak.memory_bytes for key, peak in peaks.items()} == {4 * GIB: 6, 7 * GIB: 9}
    [plain] = plan_peaks(rows, NODES, told, stored={}, elastic=PLAIN)
    assert plain.fitted_bytes == 0
    assert plan_peaks(rows, NODES, told, stored={}, elastic={}) == {}, "a revision that is no longer to serve"


@given(st.integers(1, 1 << 45))
def test_a_reservation_is_rounded_by_no_more_than_a_sixteenth(reserved: int) -> None:
    assert abs(round_fitted(reserved, Elastic.SLOTS) - reserved) <= reserved / 16
