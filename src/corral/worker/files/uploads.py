"""Uploads from frontends: resumable, verified, and restricted to their areas."""

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
    """The remaining quota; None without a quota."""
    _locks: NamedLocks = field(default_factory=NamedLocks)
    _hashes: RunningHashes = field(default_factory=RunningHashes)

    async def put(
        self,
        area: Area,
        key: str,
        body: AsyncIterator[bytes],
        *,
        content_range: ContentRange | None,
        sha256: str | None,
        length: int | None,
    ) -> Received | AlreadyThere | OtherFile | OtherOffset:
        # Uploads of the same file are serialized; the second learns the size that the first has reached.
        name = (str(area.root), key)
        async with self._locks.held(name):
            await asyncio.to_thread(_reject_hash_name, area, key)
            plan: UploadPlan = Write(0)
            if content_range is not None:
                stored = await asyncio.to_thread(read_stored, area, key)
                plan = plan_upload(content_range, stored, sha256)
            if isinstance(plan, OtherFile) and plan.drop:
                await asyncio.to_thread(drop, area, key)
            if not isinstance(plan, Write):
                return plan
            expected = content_range.length if content_range is not None else length
            target = sha256 if content_range is not None and content_range.end + 1 < content_range.total else None
            total = content_range.total - plan.offset if content_range is not None else length or 0
            left = await asyncio.to_thread(self.left_bytes)
            if left is not None and plan.offset == 0:  # the existing file is replaced
                left += (await asyncio.to_thread(read_stored, area, key)).size or 0
            if left is not None and total > left:
                raise NoSpace(f"{total} bytes exceed the {left} bytes left of this node's quota; delete files first")
            file = await asyncio.to_thread(_begin, area, key, plan.offset, sha256 if content_range else target, total)
            with file:
                receiving = Receiving(file, plan.offset, self._hashes.take(name, file, plan.offset))
                try:
                    await receiving.take(body, expected=expected, left=left)
                finally:
                    self._hashes.keep(name, receiving)
                if content_range is not None and receiving.size < content_range.total:
                    return Received(receiving.size, complete=False)
                self._hashes.forget(name)
                await asyncio.to_thread(_flush, area, key, file)
            await asyncio.to_thread(_finish, area, key, receiving.hexdigest(), sha256)
            return Received(receiving.size, complete=True)


def _begin(area: Area, key: str, offset: int, target: str | None, needed: int) -> FileIO:
    with area.parent(key, create=True) as (directory, name):
        room = os.fstatvfs(directory)
        if needed > room.f_bavail * room.f_frsize - DISK_RESERVE_BYTES:
            raise NoSpace(f"{needed} bytes do not fit on this machine's disk; free space on it")
        if offset == 0:
            drop(area, key)
            if target:
                _write_hash(directory, name + TARGET, target)
        file = open_regular(directory, name, os.O_RDWR | os.O_CREAT)
        file.seek(offset)
        return file


def _flush(area: Area, key: str, file: FileIO) -> None:
    """Syncs the file before its hash is recorded: after a power failure the hash must not outlive the bytes."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        drop(area, key)
        raise NoSpace(f"cannot write the file: {error.strerror}; it was removed") from error


def _finish(area: Area, key: str, digest: str | None, sha256: str | None) -> None:
    with area.parent(key) as (directory, name):
        if digest is None:
            with open_regular(directory, name, os.O_RDONLY) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 is not None and digest != sha256:
            drop(area, key)
            raise HashMismatch(f"the file's SHA-256 is {digest}, not {sha256}; it was removed")
        with open_regular(directory, name, os.O_RDONLY) as file:
            _write_hash(directory, name + FINAL, digest, of_ns=os.fstat(file.fileno()).st_mtime_ns)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name + TARGET, dir_fd=directory)


def _reject_hash_name(area: Area, key: str) -> None:
    """Rejects uploads to the hash files of existing files, with which a client could forge a hash."""
    for suffix in (FINAL, TARGET):
        base = key.removesuffix(suffix)
        if base != key and base and not base.endswith("/") and read_stored(area, base).size is not None:
            raise InvalidInput(f"{key[-80:]!r} is reserved for the hash of another file; use another name")


def drop(area: Area, key: str) -> None:
    try:
        with area.parent(key) as (directory, name):
            for entry in (name, name + FINAL, name + TARGET):
                with contextlib.suppress(FileNotFoundError):
                    _unlink_file(directory, entry)
    except NotFound:
        return


def _unlink_file(directory: int, name: str) -> None:
    """Removes only regular files: links and directories were not created by Corral."""
    if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        raise OutsideArea(f"{name!r} is not a regular file")
    os.unlink(name, dir_fd=directory)


def read_stored(area: Area, key: str, *, with_hash: bool = False) -> Stored:
    """`with_hash` computes and records the SHA-256 of a complete file if it is unknown. Raises for directories."""
    try:
        with area.parent(key) as (directory, name):
            with open_regular(directory, name, os.O_RDONLY) as file:
                status = os.fstat(file.fileno())
                target = _read_hash(directory, name + TARGET)
                final = None if target else _read_hash(directory, name + FINAL, of_ns=status.st_mtime_ns)
                if with_hash and target is None and final is None:
                    final = hashlib.file_digest(file, "sha256").hexdigest()
                    with contextlib.suppress(CorralError, OSError):  # a full disk must not fail the lookup
                        _write_hash(directory, name + FINAL, final, of_ns=status.st_mtime_ns)
            return Stored(size=status.st_size, sha256=final, target=target)
    except NotFound:
        return Stored(size=None)


def _read_hash(directory: int, name: str, *, of_ns: int | None = None) -> str | None:
    """`of_ns`: only if the hash file has this modification time, that of its file; otherwise it is outdated."""
    try:
        with open_regular(directory, name, os.O_RDONLY) as hash_file:
            if of_ns is not None and os.fstat(hash_file.fileno()).st_mtime_ns != of_ns:
                return None
            return hash_file.read(64).decode("ascii", errors="replace") or None
    except NotFound:
        return None


def _write_hash(directory: int, name: str, text: str, *, of_ns: int | None = None) -> None:
    with open_regular(directory, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as hash_file:
        hash_file.write(text.encode())
        if of_ns is not None:
            os.utime(hash_file.fileno(), ns=(of_ns, of_ns))
