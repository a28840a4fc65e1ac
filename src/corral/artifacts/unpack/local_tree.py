"""A local directory as a source. It is read through descriptors, without following links, and hashed while it is
read."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corral.artifacts.cancel import CancelToken
from corral.artifacts.digests import Digest
from corral.artifacts.errors import BadReference, UnsafeArchive
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.unpack.tree import DIRECTORY_FLAGS, Parts, TreeWriter


@dataclass(frozen=True, slots=True)
class _Found:
    parts: Parts
    kind: str
    parent: int
    status: os.stat_result


def _walk(root: int, parts: Parts, depth: int) -> Iterator[_Found]:
    """Every entry, in an order independent of the filesystem. `parent` stays open while the caller uses the entry."""
    if len(parts) > depth:
        raise UnsafeArchive(f"{'/'.join(parts)[:120]!a} is more than {depth} directories deep.")
    for name in sorted(os.listdir(root)):
        status = os.stat(name, dir_fd=root, follow_symlinks=False)
        kind = {0o040000: "dir", 0o100000: "file", 0o120000: "symlink"}.get(status.st_mode & 0o170000)
        if kind is None:
            raise UnsafeArchive(f"{'/'.join((*parts, name))[:120]!a} is a device, pipe or socket.")
        yield _Found((*parts, name), kind, root, status)
        if kind == "dir":
            child = os.open(name, DIRECTORY_FLAGS, dir_fd=root)
            try:
                yield from _walk(child, (*parts, name), depth)
            finally:
                os.close(child)


class _TreeHash:
    """Names, kinds, execute bits, link targets and contents; not times or owners, which copying changes."""

    def __init__(self) -> None:
        self._running = hashlib.sha256()

    def entry(self, found: _Found, extra: bytes) -> None:
        name = os.fsencode("/".join(found.parts))
        executable = b"x" if found.kind == "file" and found.status.st_mode & 0o111 else b"-"
        for field in (found.kind.encode(), executable, name, extra):
            self._running.update(len(field).to_bytes(8, "big") + field)

    def digest(self) -> Digest:
        return Digest(f"sha256:{self._running.hexdigest()}")


def _chunks(found: _Found, cancel: CancelToken) -> Iterator[bytes]:
    descriptor = os.open(found.parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=found.parent)
    try:
        while chunk := os.read(descriptor, 1 << 20):
            cancel.check()
            yield chunk
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadReference(f"{path} is not a directory.") from error


def measure_tree(path: Path, cancel: CancelToken, depth: int) -> tuple[Digest, int]:
    """The tree's digest and size, before anything is copied."""
    tree_hash, size = _TreeHash(), 0
    root = _opened(path)
    try:
        for found in _walk(root, (), depth):
            cancel.check()
            if found.kind == "file":
                content = hashlib.sha256()
                for chunk in _chunks(found, cancel):
                    content.update(chunk)
                    size += len(chunk)
                tree_hash.entry(found, content.digest())
            elif found.kind == "symlink":
                tree_hash.entry(found, os.fsencode(os.readlink(found.parts[-1], dir_fd=found.parent)))
            else:
                tree_hash.entry(found, b"")
    finally:
        os.close(root)
    return tree_hash.digest(), size


def copy_tree(path: Path, tree: TreeWriter, cancel: CancelToken, meter: ProgressMeter, depth: int) -> Digest:
    """Copies the tree and returns the digest of the copy; the caller compares it with the measured one."""
    tree_hash = _TreeHash()
    root = _opened(path)
    try:
        for found in _walk(root, (), depth):
            cancel.check()
            if found.kind == "dir":
                tree.directory(found.parts)
                tree_hash.entry(found, b"")
            elif found.kind == "symlink":
                target = os.readlink(found.parts[-1], dir_fd=found.parent)
                tree.symlink(found.parts, target)
                tree_hash.entry(found, os.fsencode(target))
            else:
                tree_hash.entry(found, _copy_file(found, tree, cancel, meter))
    finally:
        os.close(root)
    return tree_hash.digest()


def _copy_file(found: _Found, tree: TreeWriter, cancel: CancelToken, meter: ProgressMeter) -> bytes:
    content = hashlib.sha256()

    def pieces() -> Iterator[memoryview]:
        for chunk in _chunks(found, cancel):
            content.update(chunk)
            meter.moved(len(chunk), "/".join(found.parts))
            yield memoryview(chunk)

    tree.file(
        found.parts,
        size=found.status.st_size,
        executable=bool(found.status.st_mode & 0o111),
        mtime_s=found.status.st_mtime,
        pieces=pieces(),
    )
    return content.digest()
