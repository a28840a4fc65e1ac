"""`/metrics`, for Prometheus."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from fastapi import APIRouter, Response

from corral.core.errors import CorralError
from corral.core.nodes.node import Node, NodeState
from corral.telemetry.metrics import CONTENT_TYPE, MetricRegistry, render


class Nodes(Protocol):
    async def read_all(self) -> list[Node]: ...


def metrics_routes(read: Callable[[], str], nodes: Nodes) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Requests, times, tokens, queues and open requests by model and node, and how the nodes are, in Prometheus's
        text form."""
        try:
            fleet = show_nodes(await nodes.read_all())
        except CorralError:  # a store that is away must not take the other figures along
            fleet = ""
        return Response(read() + fleet, headers={"Content-Type": CONTENT_TYPE})

    return router


def show_nodes(nodes: Sequence[Node]) -> str:
    counts = Counter(node.state for node in nodes)
    registry = MetricRegistry()
    registry.gauges(
        "corral_nodes", "Nodes by state.", "state", read=lambda: [((state,), counts[state]) for state in NodeState]
    )
    registry.gauges(
        "corral_node_condition",
        "1 while the condition keeps the node from taking new work.",
        "node",
        "condition",
        read=lambda: [((node.name, condition.kind), 1) for node in nodes for condition in node.conditions],
    )
    return render(registry.collect())
