"""`/metrics`, for Prometheus."""

from collections import Counter
from collections.abc import Callable, Sequence

from fastapi import APIRouter, Response

from corral.core.errors import CorralError
from corral.core.nodes.node import Node, NodeState
from corral.store.nodes.nodes import NodeStore
from corral.telemetry.metrics import CONTENT_TYPE, MetricRegistry, render


def metrics_routes(read: Callable[[], str], nodes: NodeStore) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Requests, durations, tokens, queues and open requests by model and node, and the states of the nodes, in
        Prometheus's text format."""
        try:
            fleet = show_nodes(await nodes.read_all())
        except CorralError:  # while the store is unreachable, the other metrics are still shown
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
        "1 while the condition blocks new work on the node.",
        "node",
        "condition",
        read=lambda: [((node.name, condition.kind), 1) for node in nodes for condition in node.conditions],
    )
    return render(registry.collect())
