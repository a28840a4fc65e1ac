"""The free capacity of a node: what it reports, less reservations, within its memory budget."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corral.core.errors import InvalidInput
from corral.core.nodes.conditions import ConditionKind
from corral.core.nodes.labels import effective_labels
from corral.core.nodes.node import Node, NodeType
from corral.core.replicas.placement import HeldReplica, NodeCapacity
from corral.core.sizes import parse_budget_bytes

CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Memory and disk that a replica will use and that the node does not report yet."""

    memory_bytes: int = 0
    disk_bytes: int = 0


def device_class(node: Node) -> str:
    """Memory footprints are compared only within one class of hardware."""
    return node.gpu_vendor if node.gpu_vendor and node.total_vram else CPU


def node_capacity(
    node: Node, replicas: Sequence[HeldReplica] = (), reservations: Iterable[Reservation] = ()
) -> NodeCapacity:
    kept = list(reservations)
    memory, disk = free_memory(node), node.available_disk
    if memory is not None:
        memory -= sum(reservation.memory_bytes for reservation in kept)
    if disk is not None:
        disk -= sum(reservation.disk_bytes for reservation in kept)
    return NodeCapacity(
        id=node.id,
        name=node.name,
        status=node.status,
        labels=effective_labels(node),
        capability=node.capability or "",
        device=device_class(node),
        slots_per_model=node.max_replicas_per_model,
        free_memory=memory,
        free_disk=disk,
        total_memory=total_memory(node),
        total_disk=node.total_disk,
        replicas=tuple(replicas),
        in_flight=sum(replica.in_flight for replica in replicas),
        takes_backends=node.node_type is NodeType.BACKEND,
        budget=node.vram_budget,
        conditions=tuple(one.reason for one in node.conditions if one.kind != ConditionKind.DISK_PRESSURE),
        low_disk=next((one.reason for one in node.conditions if one.kind == ConditionKind.DISK_PRESSURE), ""),
    )


def free_memory(node: Node) -> int | None:
    """Of the GPUs, or of the machine without GPUs. The budget limits the memory that is in use in total."""
    total, available = _memory(node)
    if available is None or total is None:
        return available
    return min(available, _within_budget(node, total) - (total - available))


def total_memory(node: Node) -> int | None:
    """Of the GPUs, or of the machine without GPUs, within the budget."""
    total, _ = _memory(node)
    return total if total is None else _within_budget(node, total)


def _memory(node: Node) -> tuple[int | None, int | None]:
    """Total and available."""
    on_gpu = device_class(node) != CPU
    return (node.total_vram, node.available_vram) if on_gpu else (node.total_ram, node.available_ram)


def _within_budget(node: Node, total_bytes: int) -> int:
    if not node.vram_budget:
        return total_bytes
    try:
        return parse_budget_bytes(node.vram_budget, total_bytes=total_bytes)
    except InvalidInput:
        return total_bytes  # the API rejects an invalid budget, but a LocalAI worker may report one
