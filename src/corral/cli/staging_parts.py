"""Weights that lie on this frontend's machine, brought to the machine that needs them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from corral.system.file_upload import upload
from corral.system.local_files import HashBook, LocalFile, list_files
from corral.system.worker_files import FileServer

FILES_AT_ONCE = 4


class FrontendStager:
    def __init__(self, models_dir: Path, find: Callable[[str], Awaitable[FileServer]]) -> None:
        self._models_dir, self._find = models_dir, find
        self._hashes = HashBook()

    async def stage(self, node_id: str, names: Sequence[str], on_progress: Callable[[int, int, int], None]) -> bool:
        """`on_progress`: files, bytes that are there, bytes in all. False when none of the names is here."""
        found = await asyncio.to_thread(self._list, names)
        if not found:
            return False
        server = await self._find(node_id)
        total = sum(file.size for file in found)
        there = 0
        on_progress(len(found), 0, total)

        def advance(count: int) -> None:
            nonlocal there
            there += count
            on_progress(len(found), min(there, total), total)

        limit = asyncio.Semaphore(FILES_AT_ONCE)

        async def send(file: LocalFile) -> None:
            async with limit:
                sent = await upload(server, file, sha256=await self._hashes.sha256(file.path), on_bytes=advance)
                advance(max(0, file.size - sent))

        async with asyncio.TaskGroup() as tasks:
            for file in found:
                tasks.create_task(send(file))
        return True

    def _list(self, names: Sequence[str]) -> list[LocalFile]:
        return [file for name in names for file in list_files(self._models_dir, name, prefix="models/")]
