"""Why a model cannot be loaded at all, as long as nobody changes the fleet or the model.

Placement (`placement.py`) says why no node can take a replica now. Most of that passes: memory becomes free, a node
returns. A request waits for such things, but not for those found here."""

from collections.abc import Sequence

from corral.core.nodes.node import NodeStatus
from corral.core.replicas.placement import Need, NodeCapacity, summarize
from corral.core.sizes import format_bytes


def find_obstacle(need: Need, nodes: Sequence[NodeCapacity]) -> str:
    """Empty where waiting may help: a node could take the replica if it were reachable, idle and without faults."""
    problems = []
    for node in nodes:
        problem = _lasting_problem(need, node)
        if not problem:
            return ""
        problems.append(problem)
    return summarize(nodes, problems)


def _lasting_problem(need: Need, node: NodeCapacity) -> str:
    """Why the node can never take the replica as things are; empty where it could, if not now."""
    if not node.takes_backends:
        return "it is an agent node, which runs no backends"
    if node.status is NodeStatus.PENDING:
        return f"it waits for approval; approve it with `corral nodes approve {node.name}`"
    for key, value in need.selector.items():
        if node.labels.get(key) != value:
            return f"its label {key} is {node.labels.get(key) or 'not set'}, not {value}"
    if node.id in need.variant_problems and node.id not in need.unresolved_on | need.unreported_on:
        return need.variant_problems[node.id]
    if node.id in need.deleted:
        return need.deleted[node.id]
    return _too_small(need, node)


def _too_small(need: Need, node: NodeCapacity) -> str:
    memory, disk = need.memory_bytes(node.device), need.disk_bytes(node.id)
    if memory is not None and node.total_memory is not None and memory > node.total_memory:
        within = f" within its budget of {node.budget}" if node.budget else ""
        return f"{format_bytes(memory)} of memory needed, it has {format_bytes(node.total_memory)}{within}"
    if node.total_disk is not None and disk > node.total_disk:
        return f"{format_bytes(disk)} of disk space needed, its disk has {format_bytes(node.total_disk)}"
    return ""
