"""What the galleries offer to each node now, against what it has at this moment."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from corral.controller.fleet import Fleet
from corral.core.errors import CorralError
from corral.core.nodes import NodeId
from corral.core.orders import NodeState
from corral.core.upgrades import Offered, Upgrade, find_upgrades, installed_names
from corral.core.variants import Unfit
from corral.system.loops import until_poked

log = structlog.get_logger()

FIRST_LOOK_WITHIN_S = 10.0
AGAIN_AFTER_S = 60.0
"""When something that could not be looked up for a reader is looked up for one again."""


class States(Protocol):
    async def read_states(self) -> list[NodeState]: ...


class Refreshable(Protocol):
    async def refresh(self) -> None: ...


class UpgradeCheck:
    def __init__(self, *, fleet: Fleet, states: States, galleries: Refreshable, every_s: float) -> None:
        self._fleet, self._states, self._galleries, self._every_s = fleet, states, galleries, every_s
        self._offers: dict[tuple[str, NodeId], Offered | Unfit] = {}
        self._not_before_s: dict[str, float] = {}
        self._looks = 0
        self._asked = asyncio.Event()
        self._looking = asyncio.Lock()

    def ask(self) -> None:
        self._asked.set()

    async def read(self) -> Mapping[str, Upgrade]:
        """Against what nodes have now."""
        states = await self._states.read_states()
        return find_upgrades(states, await self.read_offers(states))

    async def read_offers(self, states: Sequence[NodeState]) -> Mapping[tuple[str, NodeId], Offered | Unfit]:
        """By backend and node. Only what was never looked up for these is looked up now."""
        installed = await asyncio.to_thread(installed_names, states)
        if self._unknown(installed):
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOOK_WITHIN_S):
                    async with self._looking:
                        await self._look(self._unknown(installed))
        return dict(self._offers)

    @property
    def looks(self) -> int:
        """Counts up with every answer of a gallery."""
        return self._looks

    async def run(self) -> None:
        while True:
            await until_poked(self._asked, within_s=self._every_s)
            await self._galleries.refresh()
            async with self._looking:
                await self._look(installed_names(await self._states.read_states()))

    def _unknown(self, installed: Mapping[str, list[NodeState]]) -> dict[str, list[NodeState]]:
        unknown = {
            name: [state for state in holders if (name, state.node.id) not in self._offers]
            for name, holders in installed.items()
        }
        now_s = asyncio.get_running_loop().time()
        return {
            name: holders for name, holders in unknown.items() if holders and now_s >= self._not_before_s.get(name, 0.0)
        }

    async def _look(self, wanted: Mapping[str, list[NodeState]]) -> None:
        for name, holders in wanted.items():
            # Also when we are cut off by a reader's patience: the next one does not wait for the same silence.
            self._not_before_s[name] = asyncio.get_running_loop().time() + AGAIN_AFTER_S
            try:
                orders, skipped = await self._fleet.plan_upgrades(name, holders)
            except CorralError as error:
                log.warning("upgrades.not_known", backend=name, error=str(error))
                continue
            del self._not_before_s[name]
            self._looks += 1
            for order in orders:
                wish = order.wish
                self._offers[name, order.node_id] = Offered(variant=wish.name, digest=wish.digest, version=wish.version)
            for skip in skipped:
                self._offers[name, skip.node_id] = Unfit(skip.reason)
