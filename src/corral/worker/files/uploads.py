"""Files that frontends send here: resumable, verified, and only inside their areas."""

import asyncio
import contextlib
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from io import FileIO

from corral.core.errors import CorralError, InvalidInput, NotFound
from corral.core.processes.uploads import (
    AlreadyThere,
    ContentRange,
    OtherFile,
    OtherOffset,
    Stored,
    UploadPlan,
    Write,
    plan_upload,
)
from corral.core.sizes import format_bytes
from corral.worker.files.areas import Area, OutsideArea, open_regular
from corral.worker.files.upload_body import NoSpace, Receiving, RunningHashes
from corral.worker.named_locks import NamedLocks

FINAL = ".sha256"
TARGET = ".sha256.target"
DISK_RESERVE_BYTES = 256 << 20


class HashMismatch(InvalidInput):
    code = "hash_mismatch"


@dataclass(frozen=True, slots=True)
class Received:
    size: int
    complete: bool


@dataclass(eq=False, slots=True)
class Uploads:
    left_bytes: Callable[[], int | None]
    """How much may still come; None where only the disk sets a limit."""
    _locks: NamedLocks = field(default_factory=NamedLocks)
    _hashes: RunningHashes = field(default_factory=RunningHashes)

    async def put(
        self,
        area: Area,
        key: str,
        body: AsyncIterator[bytes],
        *,
        wanted: ContentRange | None,
        sha256: str | None,
        length: int | None,
    ) -> Received | AlreadyThere | OtherFile | OtherOffset:
        # Two senders of one file take turns; the second is then told how far the first has come.
        name = (str(area.root), key)
        async with self._locks.held(name):
            await asyncio.to_thread(_refuse_note, area, key)
            plan: UploadPlan = Write(0)
            if wanted is not None:
                stored = await asyncio.to_thread(read_stored, area, key)
                plan = plan_upload(wanted, stored, sha256)
            if isinstance(plan, OtherFile) and plan.drop:
                await asyncio.to_thread(drop, area, key)
            if not isinstance(plan, Write):
                return plan
            expected = wanted.length if wanted is not None else length
            target = sha256 if wanted is not None and wanted.end + 1 < wanted.total else None
            total = wanted.total - plan.offset if wanted is not None else length or 0
            left = await asyncio.to_thread(self.left_bytes)
            if left is not None and plan.offset == 0:  # what is there makes room
                left += (await asyncio.to_thread(read_stored, area, key)).size or 0
            if left is not None and total > left:
                raise NoSpace(
                    f"{format_bytes(total)} exceeds this machine's remaining upload limit of {format_bytes(left)}"
                )
            file = await asyncio.to_thread(_begin, area, key, plan.offset, sha256 if wanted else target, total)
            with file:
                receiving = Receiving(file, plan.offset, self._hashes.take(name, file, plan.offset))
                try:
                    await receiving.take(body, expected=expected, left=left)
                finally:
                    self._hashes.keep(name, receiving)
                if wanted is not None and receiving.size < wanted.total:
                    return Received(receiving.size, complete=False)
                self._hashes.forget(name)
                await asyncio.to_thread(_flush, area, key, file)
            await asyncio.to_thread(_finish, area, key, receiving.hexdigest(), sha256)
            return Received(receiving.size, complete=True)


def _begin(area: Area, key: str, offset: int, target: str | None, needed: int) -> FileIO:
    with area.parent(key, create=True) as (directory, name):
        room = os.fstatvfs(directory)
        if needed > room.f_bavail * room.f_frsize - DISK_RESERVE_BYTES:
            raise NoSpace(f"{format_bytes(needed)} exceeds the free space on this machine's disk")
        if offset == 0:
            drop(area, key)
            if target:
                _write_note(directory, name + TARGET, target)
        file = open_regular(directory, name, os.O_RDWR | os.O_CREAT)
        file.seek(offset)
        return file


def _flush(area: Area, key: str, file: FileIO) -> None:
    """Before anybody is told its hash, which would hold after a power cut when the bytes do not."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        drop(area, key)
        raise NoSpace(f"the file cannot be written: {error.strerror}; it was removed") from error


def _finish(area: Area, key: str, digest: str | None, sha256: str | None) -> None:
    with area.parent(key) as (directory, name):
        if digest is None:
            with open_regular(directory, name, os.O_RDONLY) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 is not None and digest != sha256:
            drop(area, key)
            raise HashMismatch(f"the file's SHA-256 is {digest}, not {sha256}; it was removed")
        with open_regular(directory, name, os.O_RDONLY) as file:
            _write_note(directory, name + FINAL, digest, of_ns=os.fstat(file.fileno()).st_mtime_ns)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name + TARGET, dir_fd=directory)


def _refuse_note(area: Area, key: str) -> None:
    """Beside a file, these names are ours: who could write them could say any hash of it."""
    for suffix in (FINAL, TARGET):
        base = key.removesuffix(suffix)
        if base != key and base and not base.endswith("/") and read_stored(area, base).size is not None:
            raise InvalidInput(f"{key[-80:]!r} is reserved for this server's metadata")


def drop(area: Area, key: str) -> None:
    try:
        with area.parent(key) as (directory, name):
            for entry in (name, name + FINAL, name + TARGET):
                with contextlib.suppress(FileNotFoundError):
                    _unlink_file(directory, entry)
    except NotFound:
        return


def _unlink_file(directory: int, name: str) -> None:
    """Nothing but a file: a link or a directory in its place was put there by somebody else, for a reason."""
    if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        raise OutsideArea(f"{name!r} is not a file")
    os.unlink(name, dir_fd=directory)


def read_stored(area: Area, key: str, *, with_hash: bool = False) -> Stored:
    """`with_hash` reads a complete file once, when nobody has noted its SHA-256 yet. Raises for directories."""
    try:
        with area.parent(key) as (directory, name):
            with open_regular(directory, name, os.O_RDONLY) as file:
                status = os.fstat(file.fileno())
                target = _read_note(directory, name + TARGET)
                final = None if target else _read_note(directory, name + FINAL, of_ns=status.st_mtime_ns)
                if with_hash and target is None and final is None:
                    final = hashlib.file_digest(file, "sha256").hexdigest()
                    with contextlib.suppress(CorralError, OSError):  # a full disk keeps nobody from being told
                        _write_note(directory, name + FINAL, final, of_ns=status.st_mtime_ns)
            return Stored(size=status.st_size, sha256=final, target=target)
    except NotFound:
        return Stored(size=None)


def _read_note(directory: int, name: str, *, of_ns: int | None = None) -> str | None:
    """`of_ns`: only a note of the file as it was last written, which has the file's own time. Nobody else's has."""
    try:
        with open_regular(directory, name, os.O_RDONLY) as note:
            if of_ns is not None and os.fstat(note.fileno()).st_mtime_ns != of_ns:
                return None
            return note.read(64).decode("ascii", errors="replace") or None
    except NotFound:
        return None


def _write_note(directory: int, name: str, text: str, *, of_ns: int | None = None) -> None:
    with open_regular(directory, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as note:
        note.write(text.encode())
        if of_ns is not None:
            os.utime(note.fileno(), ns=(of_ns, of_ns))
