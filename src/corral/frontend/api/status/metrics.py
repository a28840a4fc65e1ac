"""`/metrics`, for Prometheus."""

from collections import Counter
from collections.abc import Callable, Sequence

from fastapi import APIRouter, Response

from corral.controller.backends.slow_builds import SlowBuilds
from corral.core.backends.slow_builds import SlowBuild
from corral.core.errors import CorralError
from corral.core.nodes.node import Node, NodeState
from corral.core.replicas.attached import AttachedEndpoint, EndpointState
from corral.store.stores import Stores
from corral.telemetry.metrics import CONTENT_TYPE, MetricRegistry, render


def metrics_routes(read: Callable[[], str], stores: Stores, slow: SlowBuilds) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Requests, durations, tokens, queues and open requests by model and node, and the states of the nodes, in
        Prometheus's text format."""
        try:
            known = await stores.nodes.read_all()
            endpoints = await stores.attached_endpoints.read_all()
            fleet = show_nodes(known, await slow.read(known)) + show_endpoints(endpoints)
        except CorralError:  # while the store is unreachable, the other metrics are still shown
            fleet = ""
        return Response(read() + fleet, headers={"Content-Type": CONTENT_TYPE})

    return router


def show_endpoints(endpoints: Sequence[AttachedEndpoint]) -> str:
    registry = MetricRegistry()
    registry.gauges(
        "corral_attached_endpoint_healthy",
        "1 while an attached endpoint answers its health probes; 0 while it gets no requests.",
        "model",
        "node",
        read=lambda: [
            ((one.model, one.server.address), float(one.is_routed))
            for one in endpoints
            if one.state is EndpointState.ATTACHED
        ],
    )
    return render(registry.collect()) if endpoints else ""


def show_nodes(nodes: Sequence[Node], slow: Sequence[SlowBuild]) -> str:
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
    registry.gauges(
        "corral_node_slow_build",
        "1 while the node has an accelerator and only the CPU build of the backend.",
        "node",
        "backend",
        read=lambda: [((one.node_name, one.backend), 1) for one in slow],
    )
    return render(registry.collect())
