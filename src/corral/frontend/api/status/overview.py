"""`/api/overview`, `/api/nodes/{id}/history`: the last hour of the fleet and of a machine, as this frontend saw and
heard it."""

from typing import Protocol

from fastapi import APIRouter
from pydantic import BaseModel

from corral.core.nodes.history import NodeMinute
from corral.core.nodes.node import Node
from corral.core.nodes.traffic_history import SLOT_S, TrafficSample, estimate_quantile
from corral.telemetry.metrics import SECONDS


class Pulses(Protocol):
    def read(self) -> list[tuple[float, TrafficSample]]: ...

    def read_node(self, name: str) -> list[NodeMinute]: ...


class Nodes(Protocol):
    async def read_one(self, node_id: str) -> Node: ...


class SampleView(BaseModel):
    ended_age_s: float
    """How long ago this sample's time ended."""
    requests: int
    failed: int
    """Of these, answered or refused with a server error, or broken off after they began."""
    tokens_in: int
    tokens_out: int
    first_byte_p50_s: float | None
    """Until half of the answers had begun: a stream with its first token, another when it was whole; null when there
    were none."""
    first_byte_p95_s: float | None


class OverviewView(BaseModel):
    sample_s: float
    """The length of one sample."""
    samples: list[SampleView]
    """Oldest first, an hour at most: kept in memory since this frontend started."""


class MinuteView(BaseModel):
    length_s: float
    """Shorter for the minute that still runs, and for the first."""
    requests: int
    failed: int
    busy_s: float
    """Lengths of the answers together: over `length_s`, how many were under way on average."""
    ram_used: int | None
    vram_used: int | None


class NodeHistoryView(BaseModel):
    minutes: list[MinuteView]
    """Oldest first, an hour at most: kept in memory since this frontend started."""


def overview_routes(pulses: Pulses, nodes: Nodes) -> APIRouter:
    router = APIRouter(tags=["status"])

    @router.get("/api/overview")
    async def show_overview() -> OverviewView:
        """What all frontends together answered."""
        return OverviewView(sample_s=SLOT_S, samples=[_sample(age_s, beat) for age_s, beat in pulses.read()])

    @router.get("/api/nodes/{node_id}/history")
    async def show_history(node_id: str) -> NodeHistoryView:
        """What all frontends together answered with it, and the memory it had in use."""
        node = await nodes.read_one(node_id)
        return NodeHistoryView(minutes=[_minute(minute) for minute in pulses.read_node(node.name)])

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


def _sample(age_s: float, beat: TrafficSample) -> SampleView:
    return SampleView(
        ended_age_s=round(age_s, 1),
        requests=beat.requests,
        failed=beat.failed,
        tokens_in=beat.tokens_in,
        tokens_out=beat.tokens_out,
        first_byte_p50_s=estimate_quantile(SECONDS, beat.first_byte, 0.5),
        first_byte_p95_s=estimate_quantile(SECONDS, beat.first_byte, 0.95),
    )
