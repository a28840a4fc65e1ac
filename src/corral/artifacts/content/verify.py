"""Checks an installed version against what was unpacked. It finds damage by disks and scripts. It does not detect
forgery: whoever can write here can also write the index."""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.layers import Layer, LayerIndex, LayerStore
from corral.artifacts.content.versions import InstalledVersion
from corral.artifacts.unpack.inflate import fast_zlib
from corral.artifacts.unpack.tree import DIRECTORY_FLAGS, DirectoryStack, Entry

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of checking every file."""

    name: str
    digest: str
    files: int
    damaged: tuple[str, ...] = ()
    """Each damaged path, with the problem."""
    unknown: str = ""
    """Why this version cannot be checked."""

    @property
    def sound(self) -> bool:
        return not self.damaged and not self.unknown


def verify_version(version: InstalledVersion, layers: LayerStore, cancel: CancelToken) -> Verified:
    """Reads every file of the version. Files added later, such as compiled Python, are ignored."""
    metadata = version.metadata
    if version.made_by != "corral" or not metadata.layers:
        return Verified(
            name=version.name,
            digest=version.digest,
            files=0,
            unknown="not installed by Corral, so it cannot be checked",
        )
    found = {key: layers.find(key) for key in metadata.layers}
    gone = tuple(f"layer {key[:12]}: the layer and its file list are missing" for key in found if not found[key])
    if gone:
        return Verified(name=version.name, digest=version.digest, files=0, damaged=gone)
    expected = planned_tree(layer.index() for layer in found.values() if layer is not None)
    if metadata.python_lock:
        # Scripts are written anew when the environment is built, with its own interpreter in their first line.
        expected = {path: entry for path, entry in expected.items() if not path.startswith("bin/")}
    damaged = tuple(_damage(version.path, expected.values(), cancel))
    return Verified(name=version.name, digest=version.digest, files=len(expected), damaged=damaged)


def is_sound(layer: Layer, cancel: CancelToken) -> bool:
    """Whether a stored layer is intact, checked byte by byte, and may be linked into another version."""
    own = (entry for entry in layer.index().entries if entry.kind in ("file", "symlink"))
    return next(_damage(layer.tree, own, cancel), None) is None


def planned_tree(indexes: Iterable[LayerIndex]) -> Mapping[str, Entry]:
    """Files and links of a version by path, after applying its layers from the lowest up."""
    tree: dict[str, Entry] = {}
    directories: set[str] = set()
    for index in indexes:
        for entry in index.entries:
            if entry.kind == "opaque":
                _drop_below(tree, entry.path)
            elif entry.kind == "whiteout":
                tree.pop(entry.path, None)
                _drop_below(tree, entry.path)
        for entry in index.entries:
            if entry.kind == "dir":
                tree.pop(entry.path, None)
            elif entry.kind in ("file", "symlink", "hardlink"):
                if entry.path in directories:
                    _drop_below(tree, entry.path)
                other = tree.get(entry.link) if entry.kind == "hardlink" else entry
                if other is not None:
                    tree[entry.path] = msgspec.structs.replace(other, path=entry.path)
                directories.update(_ancestors(entry.path))
    return tree


def _ancestors(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _drop_below(tree: dict[str, Entry], directory: str) -> None:
    prefix = f"{directory}/" if directory else ""
    for path in [path for path in tree if path.startswith(prefix)]:
        del tree[path]


def _damage(root: Path, expected: Iterable[Entry], cancel: CancelToken) -> Iterator[str]:
    descriptor = os.open(root, DIRECTORY_FLAGS)
    stack = DirectoryStack(descriptor)
    try:
        for entry in expected:
            cancel.check()
            parts = tuple(entry.path.split("/"))
            try:
                problem = _problem(entry, parts[-1], stack.enter(parts[:-1], create=False), cancel)
            except FileNotFoundError:
                problem = "is missing"
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EIO):
                    raise
                problem = os.strerror(error.errno or 0)
            if problem:
                yield f"{entry.path}: {problem}"
    finally:
        stack.close()
        os.close(descriptor)


def _problem(entry: Entry, name: str, parent: int, cancel: CancelToken) -> str:
    if entry.kind == "symlink":
        return "" if os.readlink(name, dir_fd=parent) == entry.link else "has a different target"
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        if status.st_size != entry.size:
            return f"has {status.st_size} bytes instead of {entry.size}"
        crc = 0
        while chunk := os.read(descriptor, READ_BYTES):
            cancel.check()
            crc = fast_zlib.crc32(chunk, crc)
    finally:
        os.close(descriptor)
    return "" if entry.crc in (None, crc) else "has changed"
