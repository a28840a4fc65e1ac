"""The list of what runs, made at most a few times a second while it is long, however many people watch it."""

import asyncio

import msgspec

from corral.frontend.fleet.operation_view import OperationView, view_operation, with_live
from corral.frontend.fleet.service import Progress
from corral.store.operations import OperationStore

LONG_NODES = 200
KEPT_S = 0.25


class OpenOperations:
    def __init__(self, operations: OperationStore, live: Progress) -> None:
        self._operations, self._live = operations, live
        self._making = asyncio.Lock()
        self._kept: bytes | None = None
        self._kept_until_s = 0.0

    async def read(self) -> bytes:
        """JSON. A short list is always made anew."""
        async with self._making:
            loop = asyncio.get_running_loop()
            if self._kept is not None and loop.time() < self._kept_until_s:
                return self._kept
            found = await self._operations.read_open()
            views: list[OperationView] = [view_operation(with_live(one, self._live.of(one.id))) for one in found]
            views.sort(key=lambda view: (view.progress, view.jobID))
            made = msgspec.json.encode({"operations": views})
            self._kept = made if sum(len(one.nodes) for one in found) > LONG_NODES else None
            self._kept_until_s = loop.time() + KEPT_S
            return made
