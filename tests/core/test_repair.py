"""Processes that no row wants: ours are ended, other people's are not."""

from core.test_drift import machine
from corral.core.nodes import Node, NodeId
from corral.core.observed import ObservedProcess
from corral.core.repair import Orphan, Table, plan_repair
from corral.core.replicas import Replica, ReplicaState


def process(key: str, **fields: str) -> ObservedProcess:
    plain = {"model": key.partition("#")[0], "backend": "b", "digest": "d", "state": "ready", **fields}
    return ObservedProcess(process_key=key, replica=0, **plain)


def orphans(node: Node, *processes: ObservedProcess, epoch: int = 1) -> list[str]:
    wanted = Replica(
        id="r", node_id="n", model="wanted", slot=0, revision="v", state=ReplicaState.READY, process_key="wanted#0"
    )
    tables = {"n": Table(epoch=epoch, age_s=1.0, processes=(process("wanted#0"), *processes))}
    plan = plan_repair([wanted], {"n": node}, tables, loading=frozenset({("n", "coming#0")}), now_ms=0)
    assert all(isinstance(one, Orphan) and one.node_id == "n" for one in plan.orphans)
    return [one.process_key for one in plan.orphans]


def test_what_neither_a_row_nor_a_load_wants_is_an_orphan() -> None:
    assert orphans(machine(), process("extra#0"), process("coming#0"), process("over#0", state="failed")) == ["extra#0"]


def test_processes_of_a_localai_worker_are_left_alone() -> None:
    assert orphans(machine(id=NodeId("n"), key_hash=None), process("extra#0")) == []


def test_an_old_table_condemns_nobody() -> None:
    assert orphans(machine(epoch=2), process("extra#0"), epoch=1) == []
