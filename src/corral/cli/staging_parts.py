"""Weights that lie on this frontend's machine, brought to the machine that needs them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from corral.core.model_config import ConfigFile
from corral.core.nodes import Node
from corral.settings import StorageSettings
from corral.system.buckets import BucketSettings, WeightsBucket
from corral.system.file_upload import upload
from corral.system.local_files import HashBook, LocalFile, list_files
from corral.system.worker_files import FileServer

FILES_AT_ONCE = 4
AREA = "models/"


def bucket_settings(settings: StorageSettings) -> BucketSettings | None:
    if settings.storage_url is None:
        return None
    access, secret = settings.storage_access_key, settings.storage_secret_key
    return BucketSettings(
        url=settings.storage_url,
        bucket=settings.storage_bucket,
        region=settings.storage_region,
        access_key=access.get_secret_value() if access is not None else "",
        secret_key=secret.get_secret_value() if secret is not None else "",
    )


class FrontendStager:
    def __init__(
        self,
        models_dir: Path,
        find: Callable[[str], Awaitable[FileServer]],
        bucket: WeightsBucket | None = None,
    ) -> None:
        self._models_dir, self._find, self._bucket = models_dir, find, bucket
        self._hashes = HashBook()

    async def stage(
        self, node: Node, names: Sequence[str], on_progress: Callable[[int, int, int], None]
    ) -> Sequence[ConfigFile] | None:
        """Through the shared storage where there is one and the node is ours; else to its file server.

        `on_progress`: files, bytes that are there, bytes in all. The answer: what the node has to fetch by itself now.
        """
        found = await asyncio.to_thread(self._list, names)
        if not found:
            return None
        total = sum(file.size for file in found)
        there = 0
        on_progress(len(found), 0, total)

        def advance(count: int) -> None:
            nonlocal there
            there += count
            on_progress(len(found), min(there, total), total)

        send = await self._sender(node, advance)
        limit = asyncio.Semaphore(FILES_AT_ONCE)

        async def bring(file: LocalFile) -> ConfigFile | None:
            async with limit:
                return await send(file, await self._hashes.sha256(file.path))

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(bring(file)) for file in found]
        except ExceptionGroup as several:  # whoever waits for the load is told one cause, the first
            raise several.exceptions[0] from several
        on_progress(len(found), total, total)
        return [left for task in running if (left := task.result()) is not None]

    async def _sender(
        self, node: Node, advance: Callable[[int], None]
    ) -> Callable[[LocalFile, str], Awaitable[ConfigFile | None]]:
        bucket = self._bucket
        if bucket is not None and node.key_hash is not None:

            async def put(file: LocalFile, sha256: str) -> ConfigFile | None:
                address = await bucket.put(file, sha256=sha256, on_bytes=advance)
                return ConfigFile(file.key.removeprefix(AREA), address, sha256)

            return put
        server = await self._find(node.id)

        async def send(file: LocalFile, sha256: str) -> ConfigFile | None:
            sent = await upload(server, file, sha256=sha256, on_bytes=advance)
            advance(max(0, file.size - sent))
            return None

        return send

    def _list(self, names: Sequence[str]) -> list[LocalFile]:
        return [file for name in names for file in list_files(self._models_dir, name, prefix=AREA)]
