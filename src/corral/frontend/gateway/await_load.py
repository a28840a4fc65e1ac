"""Waits until a replica serves a model."""

import asyncio
from collections.abc import Mapping

from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.frontend.gateway.endpoints import ServedModel
from corral.frontend.gateway.loads import Loads, ModelLoading
from corral.frontend.gateway.route_table import RouteTable

LOAD_WAIT_HEADER = b"x-corral-load-wait"
"""How many seconds a request waits for its model to load."""
LOAD_WAIT_MAX_DIGITS = 6
ROUTED_WITHIN_S = 5.0


def load_wait_s(headers: Mapping[bytes, bytes], *, max_s: float) -> float:
    """A client may choose a shorter wait than the frontend's, but not a longer one."""
    requested = headers.get(LOAD_WAIT_HEADER, b"")
    return min(max_s, float(requested)) if requested.isdigit() and len(requested) <= LOAD_WAIT_MAX_DIGITS else max_s


async def wait_until_loaded(loads: Loads, table: RouteTable, served: ServedModel, *, within_s: float) -> None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while True:
        await loads.ensure(served.name, within_s=max(0.0, until_s - loop.time()))
        table.notify()
        if await _is_routed(table, served):
            return
        # The new replica may be gone before it is in the route table. Then another load is requested.
        if loop.time() >= until_s:
            raise ModelLoading(
                f"{served.name!r} was loaded, but no replica is ready yet; retry later",
                loading=LoadProgress(model=served.name, state=LoadState.LOADING),
                retry_after_s=5,
            )


async def _is_routed(table: RouteTable, served: ServedModel) -> bool:
    try:
        async with asyncio.timeout(ROUTED_WITHIN_S):
            while not served.endpoints:
                await table.wait_for_change()
    except TimeoutError:
        return False
    return True
