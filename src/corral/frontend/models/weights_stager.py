"""Sends weights from this frontend's disk to the node that needs them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from corral.core.errors import Unavailable
from corral.core.models.config import ConfigFile
from corral.core.nodes.node import Node
from corral.core.replicas.staging import FileTransfer
from corral.settings.roles import StorageSettings
from corral.store.serving.bucket_weights import BucketWeightsStore
from corral.system import Clock, Ids
from corral.system.buckets import WeightsBucket
from corral.system.file_upload import upload
from corral.system.local_files import HashCache, LocalFile, list_files
from corral.system.s3 import S3Bucket, S3Settings
from corral.system.worker_files import FileServer

FILES_AT_ONCE = 4
AREA = "models/"
RECORD_AGAIN_S = 0.5
RECORD_TRIES = 120
"""Together as long as the claim on a deletion lasts, in case its owner died."""
CLOCKS_APART_MS = 3_600_000
"""The difference allowed between the store's clock and this machine's disk, plus the time that sending may take. A file
that is checked without need is only hashed, once."""


def open_weights_bucket(settings: StorageSettings, *, clock: Clock, ids: Ids) -> WeightsBucket | None:
    if settings.storage_url is None:
        return None
    access, secret = settings.storage_access_key, settings.storage_secret_key
    found = S3Settings(
        endpoint=settings.storage_url,
        region=settings.storage_region,
        access_key=access.get_secret_value() if access is not None else "",
        secret_key=secret.get_secret_value() if secret is not None else "",
    )
    return WeightsBucket(S3Bucket(found, settings.storage_bucket, clock=clock, ids=ids))


_Send = Callable[[LocalFile, str, Callable[[int], None]], Awaitable[ConfigFile | None]]


class RecordedBucket:
    """A bucket whose objects are recorded in the store, with their models, before they are written."""

    def __init__(self, bucket: WeightsBucket, weights: BucketWeightsStore) -> None:
        self._bucket, self._weights = bucket, weights

    async def put(self, model: str, file: LocalFile, *, sha256: str, on_bytes: Callable[[int], None]) -> str:
        name = file.key.removeprefix(AREA)
        for _ in range(RECORD_TRIES):
            if await self._weights.note(self._bucket.place, sha256, model, name):
                address = await self._bucket.put(file, sha256=sha256, on_bytes=on_bytes)
                # The model may have been deleted or edited meanwhile, and the record removed.
                if await self._weights.note(self._bucket.place, sha256, model, name):
                    return address
            await asyncio.sleep(RECORD_AGAIN_S)
        raise Unavailable(
            f"{file.path.name} is being deleted from the shared storage and can be stored again after that"
        )


class UploadProgress:
    """Progress of several files that are sent at the same time."""

    def __init__(
        self, files: Sequence[LocalFile], on_progress: Callable[[FileTransfer], None], *, hop: int = 1, hops: int = 1
    ) -> None:
        self._names = {file.key: file.path.name for file in files}
        self._there = {file.key: 0 for file in files}
        self._ended: set[str] = set()
        self._total_bytes = sum(file.size for file in files)
        self._hop, self._hops, self._on_progress = hop, hops, on_progress
        self._report()

    def add(self, file: LocalFile, count: int) -> None:
        self._there[file.key] = min(file.size, self._there[file.key] + count)  # bytes that are sent twice count once
        self._report()

    def end(self, file: LocalFile) -> None:
        """The file is complete, also if it was there before."""
        self._there[file.key] = file.size
        self._ended.add(file.key)
        self._report()

    def _report(self) -> None:
        moving = next((name for key, name in self._names.items() if key not in self._ended), "")
        self._on_progress(
            FileTransfer(
                file_index=min(len(self._ended) + 1, len(self._there)),
                file_name=moving,
                files=len(self._there),
                bytes_done=sum(self._there.values()),
                bytes_total=self._total_bytes,
                hop=self._hop,
                hops=self._hops,
            )
        )


class FrontendStager:
    def __init__(
        self,
        models_dir: Path,
        find: Callable[[str], Awaitable[FileServer]],
        bucket: RecordedBucket | None = None,
    ) -> None:
        self._models_dir, self._find, self._bucket = models_dir, find, bucket
        self._hashes = HashCache()

    async def stage(
        self, model: str, node: Node, names: Sequence[str], on_progress: Callable[[FileTransfer], None]
    ) -> Sequence[ConfigFile] | None:
        """Send files through the shared storage, if there is one and the node is a Corral worker, otherwise to the
        node's file server. Returns the files that the node must fetch itself."""
        found = await asyncio.to_thread(self._list, names)
        if not found:
            return None
        send, hops = await self._sender(model, node)
        uploaded = UploadProgress(found, on_progress, hops=hops)
        limit = asyncio.Semaphore(FILES_AT_ONCE)

        async def bring(file: LocalFile) -> ConfigFile | None:
            async with limit:
                left = await send(file, await self._hashes.sha256(file.path), partial(uploaded.add, file))
            uploaded.end(file)
            return left

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(bring(file)) for file in found]
        except ExceptionGroup as several:  # clients that wait for the load get the first cause
            raise several.exceptions[0] from several
        return [left for task in running if (left := task.result()) is not None]

    async def sha256_of(self, name: str) -> str | None:
        found = await asyncio.to_thread(self._list, [name])
        if not found:
            return None
        alone = len(found) == 1 and found[0].path == self._models_dir / name
        return await self._hashes.sha256(found[0].path) if alone else ""

    async def changed_since(self, names: Sequence[str], at_ms: int) -> Sequence[str]:
        return await asyncio.to_thread(self._changed_since, names, at_ms - CLOCKS_APART_MS)

    def _changed_since(self, names: Sequence[str], at_ms: int) -> list[str]:
        return [name for name in names if any(file.changed_ms > at_ms for file in self._list([name]))]

    async def _sender(self, model: str, node: Node) -> tuple[_Send, int]:
        """The sender, and how many transfers each byte takes."""
        bucket = self._bucket
        if bucket is not None and node.speaks_corral:

            async def put(file: LocalFile, sha256: str, on_bytes: Callable[[int], None]) -> ConfigFile | None:
                address = await bucket.put(model, file, sha256=sha256, on_bytes=on_bytes)
                return ConfigFile(file.key.removeprefix(AREA), address, sha256)

            return put, 2
        server = await self._find(node.id)

        async def send(file: LocalFile, sha256: str, on_bytes: Callable[[int], None]) -> ConfigFile | None:
            await upload(server, file, sha256=sha256, on_bytes=on_bytes)
            return None

        return send, 1

    def _list(self, names: Sequence[str]) -> list[LocalFile]:
        return [file for name in names for file in list_files(self._models_dir, name, prefix=AREA)]
