"""The process leases of all nodes, cached in memory so that heartbeats do not wait for the store."""

import asyncio

import structlog

from corral.bus.node_api import GrantedLeases
from corral.core.errors import CorralError
from corral.core.processes.leases import NodeShare, plan_lease
from corral.store.serving.replicas import ReplicaStore
from corral.system import Clock

log = structlog.get_logger()

REFRESH_EVERY_S = 1.0
REFRESH_WITHIN_S = 10.0
KNOWN_FOR_S = 15.0
"""Leases that were not compared with the store for longer are unknown."""

_NOTHING = GrantedLeases()


class LeaseGrants:
    def __init__(self, replicas: ReplicaStore, *, lease_s: float, clock: Clock) -> None:
        self._replicas, self._lease_s, self._clock = replicas, lease_s, clock
        self._by_node: dict[str, GrantedLeases] = {}
        self._version: int | None = None
        self._refreshed_s = 0.0

    def find(self, node_id: str) -> GrantedLeases | None:
        """The leases of a node; None when they are unknown."""
        if self._version is None or self._clock.monotonic_s() - self._refreshed_s > KNOWN_FOR_S:
            return None
        return self._by_node.get(node_id, _NOTHING)

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REFRESH_WITHIN_S):
                    await self.refresh()
            except (CorralError, TimeoutError) as error:
                log.warning("process_leases.refresh_failed", error=str(error) or "the store did not answer in time")
            await asyncio.sleep(REFRESH_EVERY_S)

    async def refresh(self) -> None:
        began_s = self._clock.monotonic_s()
        if await self._replicas.read_version() != self._version:
            self._version, shares = await self._replicas.read_shares()
            self._by_node = {node: self._grant(share) for node, share in shares.items()}
        self._refreshed_s = began_s

    def _grant(self, share: NodeShare) -> GrantedLeases:
        leases_s, revoked = plan_lease(share, lease_s=self._lease_s)
        return GrantedLeases(leases_s=dict(leases_s), revoked=dict(revoked))
