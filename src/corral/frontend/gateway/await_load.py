"""Waiting for a model that no replica serves yet."""

import asyncio
from collections.abc import Mapping

from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.frontend.gateway.loads import Loads, ModelLoading
from corral.frontend.gateway.route_table import RouteTable
from corral.frontend.gateway.targets import ServedModel

LOAD_WAIT_HEADER = b"x-corral-load-wait"
"""For how many seconds to hold a request while its model is being loaded."""
LOAD_WAIT_MOST_DIGITS = 6
SEEN_WITHIN_S = 5.0


def load_wait_s(headers: Mapping[bytes, bytes], *, most_s: float) -> float:
    """A client may be less patient than the frontend."""
    asked = headers.get(LOAD_WAIT_HEADER, b"")
    return min(most_s, float(asked)) if asked.isdigit() and len(asked) <= LOAD_WAIT_MOST_DIGITS else most_s


async def wait_until_loaded(loads: Loads, table: RouteTable, served: ServedModel, *, within_s: float) -> None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while True:
        await loads.ensure(served.name, within_s=max(0.0, until_s - loop.time()))
        table.notify()
        if await _is_seen(table, served):
            return
        # What was there may be gone before we see it; then it is asked for again.
        if loop.time() >= until_s:
            raise ModelLoading(
                f"{served.name!r} was loaded, but no replica can be used yet; try again",
                loading=LoadProgress(model=served.name, state=LoadState.LOADING),
                retry_after_s=5,
            )


async def _is_seen(table: RouteTable, served: ServedModel) -> bool:
    try:
        async with asyncio.timeout(SEEN_WITHIN_S):
            while not served.targets:
                await table.wait_for_change()
    except TimeoutError:
        return False
    return True
