"""Placement on a large cluster: one decision among 1,000 nodes, and 1,000 replicas one after another.

python benchmarks/placement.py
"""

import statistics
import time
from dataclasses import replace

from corral.core.nodes.node import NodeStatus
from corral.core.replicas.placement import GIB, HeldReplica, Need, NodeCapacity, Placed, place

NODES = 1000
REPLICAS = 1000


def make_nodes() -> list[NodeCapacity]:
    return [
        NodeCapacity(
            id=f"id-{number}",
            name=f"node-{number:04}",
            status=NodeStatus.HEALTHY,
            labels={
                "node.name": f"node-{number:04}",
                "tier": "fast" if number % 2 else "slow",
                "rack": f"r{number % 40}",
            },
            capability="nvidia-cuda-12" if number % 3 else "cpu",
            device="nvidia" if number % 3 else "cpu",
            slots_per_model=2,
            free_memory=(8 + number % 72) * GIB if number % 50 else None,
            free_disk=(50 + number % 400) * GIB,
        )
        for number in range(NODES)
    ]


def make_need(number: int) -> Need:
    return Need(
        model=f"model-{number % 100}",
        selector={"tier": "fast"} if number % 4 == 0 else {},
        weights_bytes=(1 + number % 12) * GIB,
        groups=frozenset({"large"}) if number % 12 == 11 else frozenset(),
    )


def put(nodes: list[NodeCapacity], index: dict[str, int], need: Need, placed: Placed) -> None:
    position = index[placed.node_id]
    node = nodes[position]
    new = HeldReplica(
        id=f"{need.model}-{placed.node_id}",
        model=need.model,
        slot=placed.slot,
        memory_bytes=placed.memory_bytes,
        groups=need.groups,
    )
    free = node.free_memory - (placed.memory_bytes or 0) if node.free_memory is not None else None
    nodes[position] = replace(node, replicas=(*node.replicas, new), free_memory=free)


def main() -> None:
    nodes = make_nodes()
    index = {node.id: position for position, node in enumerate(nodes)}
    times_ms, waiting = [], 0
    began, began_cpu = time.perf_counter(), time.process_time()
    for number in range(REPLICAS):
        need = make_need(number)
        one = time.process_time()
        outcome = place(need, nodes).outcome
        times_ms.append((time.process_time() - one) * 1000)
        if isinstance(outcome, Placed):
            put(nodes, index, need, outcome)
        else:
            waiting += 1
    total_s = time.perf_counter() - began
    cpu_s = time.process_time() - began_cpu
    print(f"{REPLICAS - waiting} of {REPLICAS} replicas placed on {NODES} nodes in {total_s:.2f} s ({cpu_s:.2f} s CPU)")
    print(
        f"one decision among {NODES} nodes, CPU: median {statistics.median(times_ms):.2f} ms,"
        f" 99 % under {sorted(times_ms)[int(len(times_ms) * 0.99)]:.2f} ms, worst {max(times_ms):.2f} ms"
    )


if __name__ == "__main__":
    main()
