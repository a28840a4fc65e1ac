"""S3 mode: weights and outputs travel through an object store that frontends and workers share."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from corral.core.errors import Forbidden, NotFound, Unavailable
from corral.worker.files.areas import Area, split_key

if TYPE_CHECKING:
    from obstore.store import ObjectStore

CHUNK_BYTES = 8 << 20
STALL_S = 60.0
TEMPORARY = "staging-tmp"
PART_MARK = ".part-"


@dataclass(frozen=True, slots=True)
class SharedStorage:
    store: "ObjectStore"
    models: Area
    data: Area
    cache: Area
    unique: Callable[[], str]
    put_exact: Callable[[str, FileIO], None]
    """Blocking. For keys obstore has no way to write: it makes one slash of two."""

    async def ensure(self, key: str) -> Path:
        """The object as a local file. One that is here already, unchanged, is not fetched again."""
        import obstore
        from obstore.exceptions import BaseError

        key = object_key(key)
        try:
            async with asyncio.timeout(STALL_S):
                meta = await obstore.head_async(self.store, key)
            mark = f"{meta['e_tag'] or ''} {meta['size']} {meta['last_modified'].isoformat()}"
            if await asyncio.to_thread(self._is_current, key, meta["size"], mark):
                return self.cache.path(key)
            await self._fetch(key, mark)
        except FileNotFoundError:
            raise NotFound(f"the shared storage has no {key!r}") from None
        except (BaseError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise Unavailable(f"cannot fetch {key!r} from the shared storage: {why}") from error
        return self.cache.path(key)

    async def _fetch(self, key: str, mark: str) -> None:
        import obstore

        part = f"{key}{PART_MARK}{self.unique()}"
        file = await asyncio.to_thread(self.cache.open, part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with file:
                async with asyncio.timeout(STALL_S):
                    stream = aiter((await obstore.get_async(self.store, key)).stream(min_chunk_size=CHUNK_BYTES))
                while True:
                    async with asyncio.timeout(STALL_S):  # per piece: weights take as long as they are large
                        piece = await anext(stream, None)
                    if piece is None:
                        break
                    await asyncio.to_thread(_write_all, file, bytes(piece))
                await asyncio.to_thread(os.fsync, file.fileno())
            await asyncio.to_thread(self._place, part, key, mark)
        except BaseException:
            await asyncio.to_thread(self.cache.remove, part)
            raise

    async def stage(self, local_path: str, key: str) -> None:
        """A file of the cache or the models, put where frontends find it."""
        import obstore
        from obstore.exceptions import BaseError

        for area in (self.cache, self.models):
            inside = area.relative(local_path)
            if inside is not None:
                break
        else:
            raise Forbidden("only files of the cache and the models directory are staged")
        plain = object_key(key)
        file = await asyncio.to_thread(area.open, inside, os.O_RDONLY)
        with file:
            try:
                if plain == key:
                    await obstore.put_async(self.store, key, file)
                else:  # LocalAI's frontends fetch outputs from exactly the key they gave, doubled slashes and all
                    await asyncio.to_thread(self.put_exact, key, file)
            except (BaseError, Unavailable) as error:
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
    """Checked, and as obstore and our cache know it: they have no empty names, so doubled slashes are one."""
    return "/".join(split_key(key))


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
