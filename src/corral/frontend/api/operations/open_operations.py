"""The list of what runs, made at most a few times a second while it is long, however many people watch it."""

import asyncio
from typing import Protocol

import msgspec

from corral.core.backends.operations import Operation
from corral.frontend.api.backends.service import Progress
from corral.frontend.api.operations.view import OperationView, view_operation, with_live

LONG_NODES = 50
MADE_EVERY_S = 0.25
KEPT_MOST_S = 0.75
WATCHED_FOR_S = 2.0
"""After somebody asked, it is kept current for the next one."""


class Operations(Protocol):
    async def read_open(self) -> list[Operation]: ...


class OpenOperations:
    def __init__(self, operations: Operations, live: Progress) -> None:
        self._operations, self._live = operations, live
        self._making = asyncio.Lock()
        self._kept: bytes | None = None
        self._made_s = 0.0
        self._asked_s = 0.0

    async def read(self) -> bytes:
        """JSON. A short list is always made anew; whoever asks for a long one does not wait for the store."""
        self._asked_s = asyncio.get_running_loop().time()
        if (kept := self._find_kept()) is not None:
            return kept
        async with self._making:
            return self._find_kept() or await self._make()

    async def run(self) -> None:
        """Makes a long list anew while it is watched."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(MADE_EVERY_S)
            if self._kept is not None and loop.time() - self._asked_s < WATCHED_FOR_S:
                async with self._making:
                    await self._make()

    def _find_kept(self) -> bytes | None:
        is_fresh = asyncio.get_running_loop().time() - self._made_s < KEPT_MOST_S
        return self._kept if is_fresh else None

    async def _make(self) -> bytes:
        began_s = asyncio.get_running_loop().time()
        found = await self._operations.read_open()
        views: list[OperationView] = []
        for one in found:
            views.append(view_operation(with_live(one, self._live.of(one.id))))
            await asyncio.sleep(0)  # long lists must not delay other requests
        views.sort(key=lambda view: (view.progress, view.id, view.jobID))
        made = msgspec.json.encode({"operations": views})
        self._kept = made if sum(len(one.nodes) for one in found) > LONG_NODES else None
        self._made_s = began_s
        return made
