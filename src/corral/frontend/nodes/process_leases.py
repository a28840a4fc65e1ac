"""What nodes may go on running, in memory: a thousand heartbeats ask, and none of them waits for the store."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import structlog

from corral.bus.node_api import GrantedLeases
from corral.core.errors import CorralError
from corral.core.processes.leases import NodeShare, plan_lease
from corral.system import Clock

log = structlog.get_logger()

LOOK_EVERY_S = 1.0
LOOK_WITHIN_S = 10.0
KNOWN_FOR_S = 15.0
"""Whoever has not compared with the store for longer does not know."""

_NOTHING = GrantedLeases()


class Shares(Protocol):
    async def read_version(self) -> int: ...

    async def read_shares(self) -> tuple[int, Mapping[str, NodeShare]]: ...


class LeaseGrants:
    def __init__(self, shares: Shares, *, lease_s: float, clock: Clock) -> None:
        self._shares, self._lease_s, self._clock = shares, lease_s, clock
        self._by_node: dict[str, GrantedLeases] = {}
        self._version: int | None = None
        self._looked_s = 0.0

    def find(self, node_id: str) -> GrantedLeases | None:
        """None when we do not know: then nothing is said, rather than something wrong."""
        if self._version is None or self._clock.monotonic_s() - self._looked_s > KNOWN_FOR_S:
            return None
        return self._by_node.get(node_id, _NOTHING)

    async def follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_WITHIN_S):
                    await self.look()
            except (CorralError, TimeoutError) as error:
                log.warning("grants.look_failed", error=str(error) or "the store did not answer in time")
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        began_s = self._clock.monotonic_s()
        if await self._shares.read_version() != self._version:
            self._version, shares = await self._shares.read_shares()
            self._by_node = {node: self._grant(share) for node, share in shares.items()}
        self._looked_s = began_s

    def _grant(self, share: NodeShare) -> GrantedLeases:
        leases_s, revoked = plan_lease(share, lease_s=self._lease_s)
        return GrantedLeases(leases_s=dict(leases_s), revoked=dict(revoked))
