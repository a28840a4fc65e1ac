"""Writes the body of an upload to disk while it arrives: hashes and writes one part while receiving the next."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from io import FileIO

from corral.core.errors import InvalidInput, Unavailable

PART_BYTES = 4 << 20
STALL_S = 120.0
LARGEST_BODY_BYTES = 50 << 30
HASHES_KEPT = 64

Name = tuple[str, str]


class NoSpace(Unavailable):
    code = "no_space"


class ShortBody(InvalidInput):
    """The received bytes are kept; the client can resume from there."""


class Receiving:
    """One body, appended to a file at `offset`. Even after an error, `size` bytes are on disk."""

    def __init__(self, file: FileIO, offset: int, hasher: "hashlib._Hash | None") -> None:
        self.file = file
        self.size = offset
        self.hasher = hasher
        """Of the file up to `size`; None if its beginning was not read."""
        self._offset = offset
        self._parts: list[bytes] = []
        self._pending = 0
        self._writing: asyncio.Future[int] | None = None

    def hexdigest(self) -> str | None:
        return self.hasher.hexdigest() if self.hasher is not None else None

    async def take(self, body: AsyncIterator[bytes], *, expected: int | None, left: int | None) -> None:
        limit = LARGEST_BODY_BYTES if expected is None else min(expected, LARGEST_BODY_BYTES)
        received = 0
        iterator = aiter(body)
        try:
            while True:
                async with asyncio.timeout(STALL_S):
                    piece = await anext(iterator, None)
                if piece is None:
                    break
                received += len(piece)
                if left is not None and received > left:
                    raise NoSpace(f"the upload exceeds the {left} bytes left of this node's quota; delete files first")
                if received > limit:
                    raise InvalidInput("the body is longer than announced")
                self._parts.append(piece)
                self._pending += len(piece)
                if self._pending >= PART_BYTES:
                    await self._write()
            await self._write()
            await self._written()
        except TimeoutError:
            raise ShortBody(f"no data received for {STALL_S:.0f} s; resume the upload") from None
        finally:
            # Also if the client disconnects: keeps the received bytes, so that it can resume.
            with contextlib.suppress(NoSpace):
                await self._write()
                await self._written()
        if expected is not None and received < expected:
            raise ShortBody(f"received {received} of {expected} announced bytes; resume the upload")

    async def _write(self) -> None:
        """Starts to write the pending parts after the previous write has finished."""
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
            self._parts.clear()  # bytes after a gap are useless
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
        raise NoSpace(f"cannot write the file: {error.strerror}") from error
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
    """Hashes of incomplete files, so that a resumed upload need not read the file again. Kept in memory together with
    the state of the file: a file that was changed meanwhile is read again at its end."""

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
