"""S3 mode: weights and outputs pass through a bucket that frontends and workers share."""

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from corral.core.errors import Forbidden, NotFound, Unavailable
from corral.system.s3 import ObjectInfo, S3Bucket
from corral.worker.files.areas import Area, split_key

WRITE_BYTES = 4 << 20
TEMPORARY = "staging-tmp"
PART_MARK = ".part-"


@dataclass(frozen=True, slots=True)
class SharedStorage:
    bucket: S3Bucket
    models: Area
    data: Area
    cache: Area
    unique: Callable[[], str]

    async def ensure(self, key: str) -> Path:
        """The object as a local file. An unchanged local copy is not fetched again."""
        key = object_key(key)
        try:
            info = await self.bucket.read_info(key)
            mark = f"{info.etag} {info.size} {info.last_modified}"
            if not await asyncio.to_thread(self._is_current, key, info.size, mark):
                await self._fetch(key, info, mark)
        except NotFound:
            raise NotFound(f"the shared storage has no object {key!r}") from None
        except Unavailable as error:
            raise Unavailable(f"cannot fetch {key!r} from the shared storage: {error}") from error
        return self.cache.path(key)

    async def _fetch(self, key: str, info: ObjectInfo, mark: str) -> None:
        part = f"{key}{PART_MARK}{self.unique()}"
        file = await asyncio.to_thread(self.cache.open, part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with file:
                waiting = bytearray()
                async with aclosing(self.bucket.read(key, info)) as pieces:
                    async for piece in pieces:
                        waiting += piece
                        if len(waiting) >= WRITE_BYTES:
                            await asyncio.to_thread(_write_all, file, waiting)
                            waiting = bytearray()
                await asyncio.to_thread(_write_all, file, waiting)
                await asyncio.to_thread(os.fsync, file.fileno())
            await asyncio.to_thread(self._place, part, key, mark)
        except BaseException:  # cancelled or failed: no part stays
            await asyncio.to_thread(self.cache.remove, part)
            raise

    async def stage(self, local_path: str, key: str) -> None:
        """Writes a file of the cache or the models directory to the shared storage."""
        for area in (self.cache, self.models):
            inside = area.relative(local_path)
            if inside is not None:
                break
        else:
            raise Forbidden("only files of the cache and the models directory can be staged")
        object_key(key)  # checked, but not changed: LocalAI's frontends fetch from exactly the key they gave
        file = await asyncio.to_thread(area.open, inside, os.O_RDONLY)
        with file:
            try:
                await self.bucket.put(key, file, os.fstat(file.fileno()).st_size)
            except Unavailable as error:
                raise Unavailable(f"cannot stage {key!r} in the shared storage: {error}") from error

    async def make_temp(self) -> Path:
        name = f"{TEMPORARY}/localai-staging-{self.unique()}.tmp"
        (await asyncio.to_thread(self.cache.open, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)).close()
        return self.cache.path(name)

    async def list(self, prefix: str) -> list[str]:
        area, inside = self.cache, prefix
        for name, other in (("models", self.models), ("data", self.data)):
            if prefix == name or prefix.startswith(f"{name}/"):
                area, inside = other, prefix[len(name) :]
        try:
            return await asyncio.to_thread(area.read_names, inside)
        except NotFound:
            return []

    def _is_current(self, key: str, size: int, mark: str) -> bool:
        try:
            with self.cache.open(f"{key}.etag", os.O_RDONLY) as note, self.cache.open(key, os.O_RDONLY) as file:
                return note.read(4096).decode() == mark and os.fstat(file.fileno()).st_size == size
        except NotFound:
            return False

    def _place(self, part: str, key: str, mark: str) -> None:
        with self.cache.parent(key, create=True) as (directory, name):
            os.rename(part.rpartition("/")[2], name, src_dir_fd=directory, dst_dir_fd=directory)
        with self.cache.open(f"{key}.etag", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as note:
            note.write(mark.encode())


def object_key(key: str) -> str:
    """The key, checked, as a path in the cache, which has no empty names: doubled slashes become one."""
    return "/".join(split_key(key))


def _write_all(file: FileIO, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
