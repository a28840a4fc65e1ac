"""Zip files and wheels. The directory at their end is measured before it is trusted."""

import errno
import lzma
import os
import struct
import zipfile
import zlib
from calendar import timegm
from collections.abc import Callable, Iterator
from pathlib import Path

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import BudgetExceeded, UnsafeArchive
from corral.artifacts.unpack.budget import RatioGuard, UnpackBudget
from corral.artifacts.unpack.tree import Parts, TreeWriter, member_parts

_END = b"PK\x05\x06"
_END_SIZE = 22
_DIRECTORY_BYTES = 64 << 20
_COPY_BYTES = 1 << 20
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, NotImplementedError, RuntimeError,
            ValueError)  # fmt: skip
"""What the standard library raises for damaged files."""

Place = Callable[[Parts, bytes], tuple[Parts, bytes | None] | None]
"""Where a member goes: its new path and, optionally, new content. None leaves it out. It gets the content only of small
members that end in `.pth`."""


def _check_directory(path: Path, budget: UnpackBudget) -> None:
    """Counts members by the end record only: listing a million of them would already be the attack."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END_SIZE - 0xFFFF))
        tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        raise UnsafeArchive("This is not a zip file.")
    _, _, _, _, members, directory_bytes, _, _ = struct.unpack("<4s4H2LH", tail[at : at + _END_SIZE])
    if members > budget.limits.members or (directory_bytes > _DIRECTORY_BYTES and directory_bytes != 0xFFFFFFFF):
        raise BudgetExceeded(f"The zip file lists {members} members in {directory_bytes} bytes.")
    if members == 0xFFFF or directory_bytes == 0xFFFFFFFF:
        _check_zip64(tail, at, budget)


def _check_zip64(tail: bytes, end_at: int, budget: UnpackBudget) -> None:
    at = tail.rfind(b"PK\x06\x06", 0, end_at)
    if at < 0 or len(tail) - at < 56:
        raise UnsafeArchive("The zip file's ZIP64 end record is missing.")
    members, directory_bytes = struct.unpack("<QQ", tail[at + 32 : at + 48])
    if members > budget.limits.members or directory_bytes > _DIRECTORY_BYTES:
        raise BudgetExceeded(f"The zip file lists {members} members in {directory_bytes} bytes.")


def unpack_zip(path: Path, tree: TreeWriter, budget: UnpackBudget, cancel: CancelToken, *, place: Place | None) -> None:
    _check_directory(path, budget)
    try:
        with zipfile.ZipFile(path) as archive:
            guard = RatioGuard(budget)
            for info in archive.infolist():
                cancel.check()
                _member(archive, info, tree, budget, guard, cancel, place)
    except _DAMAGED as error:
        raise UnsafeArchive(f"The zip file is damaged or of an unsupported kind: {error}.") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # the disk's own trouble
            raise
        raise UnsafeArchive("The zip file is damaged: a member lies before its beginning.") from error


def _member(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    tree: TreeWriter,
    budget: UnpackBudget,
    guard: RatioGuard,
    cancel: CancelToken,
    place: Place | None,
) -> None:
    # `orig_filename` is what the file says; `filename` has been cut at a NUL already.
    if "\\" in info.orig_filename or ":" in info.orig_filename.split("/")[0]:
        raise UnsafeArchive(f"Member {info.orig_filename[:120]!a} has a name with a backslash or a drive letter.")
    parts = member_parts(os.fsencode(info.orig_filename), depth=budget.limits.depth)
    mode = info.external_attr >> 16
    if (mode & 0o170000) not in (0, 0o100000, 0o040000):
        raise UnsafeArchive(
            f"Member {info.orig_filename[:120]!a} is a link or a device, which is not supported in a zip file."
        )
    if info.orig_filename.endswith("/"):
        if place is None:
            tree.directory(parts)
        return
    if not parts:
        raise UnsafeArchive("A member of the zip file has no name.")
    content: bytes | None = None
    if place is not None:
        shown = archive.read(info) if info.file_size < 1 << 20 and parts[-1].endswith(".pth") else b""
        placed = place(parts, shown)
        if placed is None:
            return
        parts, content = placed
    size = info.file_size if content is None else len(content)
    pieces = _pieces(archive, info, guard, cancel) if content is None else iter([memoryview(content)])
    tree.file(parts, size=size, executable=bool(mode & 0o111), mtime_s=_time_of(info), pieces=pieces)


def _pieces(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, guard: RatioGuard, cancel: CancelToken
) -> Iterator[memoryview]:
    guard.packed += info.compress_size
    written = 0
    with archive.open(info) as file:
        while chunk := file.read(_COPY_BYTES):
            cancel.check()
            written += len(chunk)
            guard.unpacked += len(chunk)
            guard.check()
            if written > info.file_size:
                raise UnsafeArchive(f"Member {info.orig_filename[:120]!a} is larger than its header states.")
            yield memoryview(chunk)
    if written != info.file_size:
        raise UnsafeArchive(f"Member {info.orig_filename[:120]!a} is smaller than its header states.")


def _time_of(info: zipfile.ZipInfo) -> float:
    try:
        return float(timegm((*info.date_time, 0, 0, 0)))
    except ValueError:
        return 0.0


def read_member(path: Path, name: str, budget: UnpackBudget, cancel: CancelToken) -> Iterator[bytes]:
    """One file of a zip by its exact name."""
    _check_directory(path, budget)
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(name)
            budget.member(info.file_size)
            for piece in _pieces(archive, info, RatioGuard(budget), cancel):
                yield bytes(piece)
    except KeyError as error:
        raise UnsafeArchive(f"{path.name} contains no file {name[:200]!a}.") from error
    except _DAMAGED as error:
        raise UnsafeArchive(f"The zip file is damaged or of an unsupported kind: {error}.") from error
