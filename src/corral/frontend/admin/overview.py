"""`/api/overview`: the last hour of the whole fleet, as this frontend saw and heard it."""

from typing import Protocol

from fastapi import APIRouter
from pydantic import BaseModel

from corral.core.pulse import SLOT_S, Beat, estimate_quantile
from corral.telemetry.metrics import SECONDS


class Pulses(Protocol):
    def read(self) -> list[tuple[float, Beat]]: ...


class SampleView(BaseModel):
    ended_age_s: float
    """How long ago this sample's time ended."""
    requests: int
    failed: int
    """Of these, answered with a server error."""
    tokens_in: int
    tokens_out: int
    first_byte_p50_s: float | None
    """Until half of the answers had begun; null when there were none."""
    first_byte_p95_s: float | None


class OverviewView(BaseModel):
    sample_s: float
    """The length of one sample."""
    samples: list[SampleView]
    """Oldest first, an hour at most: kept in memory since this frontend started."""


def overview_routes(pulses: Pulses) -> APIRouter:
    router = APIRouter(tags=["status"])

    @router.get("/api/overview")
    async def show_overview() -> OverviewView:
        """What all frontends together answered."""
        return OverviewView(sample_s=SLOT_S, samples=[_sample(age_s, beat) for age_s, beat in pulses.read()])

    return router


def _sample(age_s: float, beat: Beat) -> SampleView:
    return SampleView(
        ended_age_s=round(age_s, 1),
        requests=beat.requests,
        failed=beat.failed,
        tokens_in=beat.tokens_in,
        tokens_out=beat.tokens_out,
        first_byte_p50_s=estimate_quantile(SECONDS, beat.first_byte, 0.5),
        first_byte_p95_s=estimate_quantile(SECONDS, beat.first_byte, 0.95),
    )
