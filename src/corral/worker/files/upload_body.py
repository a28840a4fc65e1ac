"""The body of an upload, onto the disk as it comes: while one part is hashed and written, the next is received."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from io import FileIO

from corral.core.errors import InvalidInput, Unavailable
from corral.core.sizes import format_bytes

PART_BYTES = 4 << 20
STALL_S = 120.0
LARGEST_BODY_BYTES = 50 << 30
HASHES_KEPT = 64

Name = tuple[str, str]


class NoSpace(Unavailable):
    code = "no_space"


class ShortBody(InvalidInput):
    """The bytes that came are kept; the sender goes on from there."""


class Receiving:
    """One body, appended to a file from `offset` on. However it ends, `size` is what is on the disk for certain."""

    def __init__(self, file: FileIO, offset: int, hasher: "hashlib._Hash | None") -> None:
        self.file = file
        self.size = offset
        self.hasher = hasher
        """Of the file up to `size`; None when its beginning was not seen."""
        self._offset = offset
        self._parts: list[bytes] = []
        self._pending = 0
        self._writing: asyncio.Future[int] | None = None

    def hexdigest(self) -> str | None:
        return self.hasher.hexdigest() if self.hasher is not None else None

    async def take(self, body: AsyncIterator[bytes], *, expected: int | None, left: int | None) -> None:
        limit = LARGEST_BODY_BYTES if expected is None else min(expected, LARGEST_BODY_BYTES)
        came = 0
        iterator = aiter(body)
        try:
            while True:
                async with asyncio.timeout(STALL_S):
                    piece = await anext(iterator, None)
                if piece is None:
                    break
                came += len(piece)
                if left is not None and came > left:
                    raise NoSpace(f"the body exceeds this machine's remaining upload limit of {format_bytes(left)}")
                if came > limit:
                    raise InvalidInput("the body is longer than announced")
                self._parts.append(piece)
                self._pending += len(piece)
                if self._pending >= PART_BYTES:
                    await self._write()
            await self._write()
            await self._written()
        except TimeoutError:
            raise ShortBody(f"no data was received for {STALL_S:.0f} s") from None
        finally:
            # Also when the sender vanished: what came is kept, so that it need not come again.
            with contextlib.suppress(NoSpace):
                await self._write()
                await self._written()
        if expected is not None and came < expected:
            raise ShortBody(f"{came} bytes were received instead of {expected}")

    async def _write(self) -> None:
        """Begins to write what is pending, when what came before it is written."""
        await self._written()
        if not self._parts:
            return
        parts, self._parts, self._pending = self._parts, [], 0
        self._writing = asyncio.ensure_future(asyncio.to_thread(_append, self.file, self.hasher, parts))

    async def _written(self) -> None:
        writing = self._writing
        if writing is None:
            return
        try:
            self.size += await asyncio.shield(writing)
        except NoSpace:
            self._parts.clear()  # what comes after a gap is of no use
            raise
        finally:
            if writing.done():
                self._writing = None


def _append(file: FileIO, hasher: "hashlib._Hash | None", parts: list[bytes]) -> int:
    data = b"".join(parts)
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise NoSpace(f"the file cannot be written: {error.strerror}") from error
    if hasher is not None:
        hasher.update(data)
    return len(data)


@dataclass(frozen=True, slots=True)
class _Kept:
    hasher: "hashlib._Hash"
    size: int
    inode: int
    changed_ns: int


@dataclass(slots=True)
class RunningHashes:
    """Hashes of files that are not whole yet: who goes on with one need not read again what came before. Kept in memory
    and by the state of the file, so that a file somebody else wrote to is read once more at its end."""

    _kept: dict[Name, _Kept] = field(default_factory=dict)

    def take(self, name: Name, file: FileIO, offset: int) -> "hashlib._Hash | None":
        kept = self._kept.pop(name, None)
        if offset == 0:
            return hashlib.sha256()
        status = os.fstat(file.fileno())
        if kept is None or (kept.inode, kept.changed_ns) != (status.st_ino, status.st_mtime_ns):
            return None
        return kept.hasher if kept.size == offset == status.st_size else None

    def keep(self, name: Name, receiving: Receiving) -> None:
        if receiving.hasher is None:
            return
        status = os.fstat(receiving.file.fileno())
        self._kept[name] = _Kept(receiving.hasher, receiving.size, status.st_ino, status.st_mtime_ns)
        while len(self._kept) > HASHES_KEPT:
            del self._kept[next(iter(self._kept))]

    def forget(self, name: Name) -> None:
        self._kept.pop(name, None)
