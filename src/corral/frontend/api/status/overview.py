"""`/api/overview`, `/api/nodes/{id}/history`: the traffic of the last hour, of the fleet and of a node, as this
frontend counted it and the others reported it."""

from fastapi import APIRouter
from pydantic import BaseModel

from corral.core.nodes.history import NodeMinute
from corral.core.nodes.traffic_history import SLOT_S, TrafficSample, estimate_quantile
from corral.frontend.gateway.traffic import FleetPulse
from corral.store.nodes.nodes import NodeStore
from corral.telemetry.metrics import SECONDS


class SampleView(BaseModel):
    ended_age_s: float
    """How long ago the sample ended."""
    requests: int
    failed: int
    """Requests answered with a server error, or broken off after the answer began."""
    tokens_in: int
    tokens_out: int
    first_byte_p50_s: float | None
    """Median time until an answer began (streams: the first token) or, without streaming, was complete; null without
    answers."""
    first_byte_p95_s: float | None


class OverviewView(BaseModel):
    sample_s: float
    """The length of one sample."""
    samples: list[SampleView]
    """Oldest first. One hour at most, and only since this frontend started."""


class MinuteView(BaseModel):
    length_s: float
    """Less than 60 for the current minute and for the first."""
    requests: int
    failed: int
    busy_s: float
    """The sum of the durations of all answers. Divided by `length_s`: the average number of answers in progress."""
    ram_used: int | None
    vram_used: int | None


class NodeHistoryView(BaseModel):
    minutes: list[MinuteView]
    """Oldest first. One hour at most, and only since this frontend started."""


def overview_routes(traffic: FleetPulse, nodes: NodeStore) -> APIRouter:
    router = APIRouter(tags=["status"])

    @router.get("/api/overview")
    async def show_overview() -> OverviewView:
        """Shows the requests that all frontends answered."""
        return OverviewView(sample_s=SLOT_S, samples=[_view(age_s, sample) for age_s, sample in traffic.read()])

    @router.get("/api/nodes/{node_id}/history")
    async def show_history(node_id: str) -> NodeHistoryView:
        """Shows the requests that a node answered, for all frontends, and the memory it used."""
        node = await nodes.read_one(node_id)
        return NodeHistoryView(minutes=[_minute(minute) for minute in traffic.read_node(node.name)])

    return router


def _minute(minute: NodeMinute) -> MinuteView:
    return MinuteView(
        length_s=round(minute.length_s, 1),
        requests=minute.share.requests,
        failed=minute.share.failed,
        busy_s=round(minute.share.busy_s, 3),
        ram_used=minute.memory.ram_bytes,
        vram_used=minute.memory.vram_bytes,
    )


def _view(age_s: float, sample: TrafficSample) -> SampleView:
    return SampleView(
        ended_age_s=round(age_s, 1),
        requests=sample.requests,
        failed=sample.failed,
        tokens_in=sample.tokens_in,
        tokens_out=sample.tokens_out,
        first_byte_p50_s=estimate_quantile(SECONDS, sample.first_byte, 0.5),
        first_byte_p95_s=estimate_quantile(SECONDS, sample.first_byte, 0.95),
    )
