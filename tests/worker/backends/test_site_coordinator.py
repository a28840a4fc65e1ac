"""A worker whose frontend does not coordinate downloads fetches alone, without waiting."""

import asyncio

import pytest

from corral.artifacts.digests import Digest
from corral.artifacts.sources.site import ClaimState, FetchAlone
from corral.bus.node_api import DownloadsReply, DownloadsRequest
from corral.core.errors import CorralError, Forbidden, InvalidInput, NotFound
from corral.system import SystemIds
from corral.worker.backends.site_coordinator import SiteCoordinator
from harness.clocks import HeldClock


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(NotFound("no such path"), id="a-frontend-without-this-path"),
        pytest.param(Forbidden("not for you"), id="a-proxy-that-refuses-it"),
        pytest.param(InvalidInput("the message cannot be read"), id="an-answer-that-is-none"),
    ],
)
async def test_it_fetches_alone_at_once(error: CorralError) -> None:
    asked = 0

    async def ask(_: DownloadsRequest) -> DownloadsReply:
        nonlocal asked
        asked += 1
        raise error

    coordinator = SiteCoordinator(ask, clock=HeldClock(), ids=SystemIds())
    for _ in range(2):
        turn = await asyncio.to_thread(coordinator.claim, Digest("sha256:1"), ClaimState(offset=0))
        assert turn == FetchAlone()
    assert asked == 1, "it is not asked again at once"
