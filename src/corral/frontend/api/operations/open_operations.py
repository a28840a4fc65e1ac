"""The list of running operations. A long list is built a few times a second at most, however many clients read it."""

import asyncio

import msgspec

from corral.controller.backends.progress import LiveProgress
from corral.frontend.api.operations.view import OperationList, view_operation, with_live
from corral.store.backends.operations import OperationStore

LONG_NODES = 50
BUILT_EVERY_S = 0.25
KEPT_MAX_S = 0.75
WATCHED_FOR_S = 2.0
"""How long after a read the list is kept current for the next reader."""


class OpenOperations:
    def __init__(self, operations: OperationStore, live: LiveProgress) -> None:
        self._operations, self._live = operations, live
        self._building = asyncio.Lock()
        self._kept: bytes | None = None
        self._built_s = 0.0
        self._read_s = 0.0

    async def read(self) -> bytes:
        """The list as JSON. A short list is built at every read; readers of a long one do not wait for the store."""
        self._read_s = asyncio.get_running_loop().time()
        if (kept := self._find_kept()) is not None:
            return kept
        async with self._building:
            return self._find_kept() or await self._build()

    async def run(self) -> None:
        """Rebuilds a long list while clients read it."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(BUILT_EVERY_S)
            if self._kept is not None and loop.time() - self._read_s < WATCHED_FOR_S:
                async with self._building:
                    await self._build()

    def _find_kept(self) -> bytes | None:
        is_fresh = asyncio.get_running_loop().time() - self._built_s < KEPT_MAX_S
        return self._kept if is_fresh else None

    async def _build(self) -> bytes:
        began_s = asyncio.get_running_loop().time()
        found = await self._operations.read_open()
        views = []
        for one in found:
            views.append(view_operation(with_live(one, self._live.of(one.id))))
            await asyncio.sleep(0)  # long lists must not delay other requests
        views.sort(key=lambda view: (view.progress, view.id, view.jobID))
        content = msgspec.json.encode(OperationList(operations=views))
        self._kept = content if sum(len(one.nodes) for one in found) > LONG_NODES else None
        self._built_s = began_s
        return content
