"""Unpacked layers, each stored once. Versions are assembled from them by hard link, so a layer that two versions
have in common is neither fetched nor unpacked nor stored a second time.

    layers/<key>/tree/...       the files, without write bits
    layers/<key>/index          every entry with size and time, and the layer's whiteouts

A process that runs from a version may write new files: directories belong to the version alone. It cannot write into
a shared file unless it runs as root; should that happen, size or time no longer fit the index, the layer counts as
damaged and is unpacked anew for the next version.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corral.artifacts.cancel import CancelToken
from corral.artifacts.disk.locks import held, sweep_locks
from corral.artifacts.disk.staging import Staging
from corral.artifacts.errors import UnsafeArchive, disk_errors
from corral.artifacts.unpack.tree import DIRECTORY_FLAGS, DirectoryStack, Entry, Parts


class LayerIndex(msgspec.Struct, frozen=True):
    entries: list[Entry]
    packed_bytes: int = 0
    unpacked_bytes: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LayerIndex).decode

Fill = Callable[[int], LayerIndex]
"""Writes a layer below an open directory and returns its index. Raises when the bytes do not match their digest."""


@dataclass(frozen=True, slots=True)
class Layer:
    key: str
    path: Path
    fresh: LayerIndex | None = None
    """The index of a layer that was just unpacked, so its files need no check."""

    @property
    def tree(self) -> Path:
        return self.path / "tree"

    def index(self) -> LayerIndex:
        return self.fresh or _decode((self.path / "index").read_bytes())


class LayerDamaged(Exception):
    """A stored layer no longer matches its index."""

    def __init__(self, layer: Layer, path: str) -> None:
        super().__init__(f"{layer.key}: {path}")
        self.layer = layer


class LayerStore:
    def __init__(self, root: Path, staging: Staging) -> None:
        self._root = root
        self._staging = staging
        self._locks = root / ".locks"
        self._locks.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> Layer | None:
        path = self._root / key
        return Layer(key, path) if (path / "index").is_file() else None

    def stored_keys(self) -> list[str]:
        return sorted(path.name for path in self._root.iterdir() if not path.name.startswith("."))

    def ensure(self, key: str, fill: Fill, cancel: CancelToken) -> Layer:
        """The layer, unpacked by `fill` if it is not stored yet. It appears under its name complete or not at all."""
        with held(self._locks, key, cancel):
            if (layer := self.find(key)) is not None:
                return layer
            staged = self._staging.new_path()
            try:
                with disk_errors(f"unpacking layer {key[:12]}"):
                    (staged / "tree").mkdir(parents=True)
                    root = os.open(staged / "tree", DIRECTORY_FLAGS)
                    try:
                        index = fill(root)
                    finally:
                        os.close(root)
                    (staged / "index").write_bytes(_encoded(index))
                    staged.rename(self._root / key)
            except BaseException:  # cancelled or failed: nothing of it stays
                self._staging.discard(staged, behind=cancel.requested)
                raise
            return Layer(key, self._root / key, fresh=index)

    def sweep_locks(self) -> None:
        sweep_locks(self._locks)

    def remove(self, key: str, *, behind: bool = False) -> None:
        self._staging.discard(self._root / key, behind=behind)


def _encoded(index: LayerIndex) -> bytes:
    try:
        return _encode(index)
    except UnicodeEncodeError as error:
        name = error.object[:120]
        raise UnsafeArchive(f"The name or the link target of member {name!a} is not UTF-8.") from error


def assemble(layers: list[Layer], target: Path, cancel: CancelToken) -> None:
    """Builds a version's tree in the empty directory `target`, lowest layer first."""
    with disk_errors(f"assembling {target.name}"):
        root = os.open(target, DIRECTORY_FLAGS)
        try:
            for layer in layers:
                _Overlay(layer, root, cancel).apply()
        finally:
            os.close(root)


class _Overlay:
    """Applies one layer on top of the tree."""

    def __init__(self, layer: Layer, root: int, cancel: CancelToken) -> None:
        self._layer = layer
        self._cancel = cancel
        self._source_root = os.open(layer.tree, DIRECTORY_FLAGS)
        self._from = DirectoryStack(self._source_root)
        self._onto = DirectoryStack(root)
        self._directory: str | None = None  # of the file last linked, open in both trees
        self._source = self._parent = -1

    def apply(self) -> None:
        try:
            index = self._layer.index()
            # Deletions speak of the layers below, wherever they stand in the archive.
            for entry in index.entries:
                if entry.kind in ("whiteout", "opaque"):
                    self._delete(entry)
            for count, entry in enumerate(index.entries):
                if count % 256 == 0:
                    self._cancel.check()
                if entry.kind == "file":
                    self._file(entry)
                else:
                    self._directory = None
                    self._place(entry)
        finally:
            self._from.close()
            self._onto.close()
            os.close(self._source_root)

    def _delete(self, entry: Entry) -> None:
        parts = tuple(entry.path.split("/")) if entry.path else ()
        try:
            if entry.kind == "opaque":
                directory = self._onto.enter(parts, create=False)
                for name in os.listdir(directory):
                    self._clear(directory, name, (*parts, name))
            else:
                self._clear(self._onto.enter(parts[:-1], create=False), parts[-1], parts)
        except FileNotFoundError:
            return  # nothing to hide
        except NotADirectoryError as error:
            raise UnsafeArchive(
                f"A whiteout's path contains {entry.path[:120]!a}, which is not a directory."
            ) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnsafeArchive(f"A whiteout's path contains the link {entry.path[:120]!a}.") from error
            raise

    def _place(self, entry: Entry) -> None:
        if entry.kind in ("whiteout", "opaque"):
            return
        parts = tuple(entry.path.split("/"))
        try:
            if entry.kind == "dir":
                self._make_directory(parts)
                return
            parent = self._onto.enter(parts[:-1], create=True)
            match entry.kind:
                case "symlink":
                    self._clear(parent, parts[-1], parts)
                    os.symlink(entry.link, parts[-1], dir_fd=parent)
                case "hardlink":
                    self._link_below(entry, parts)
        except OSError as error:
            raise _through(entry, error) from error

    def _make_directory(self, parts: Parts) -> None:
        try:
            self._onto.enter(parts, create=True)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            # A directory that the layer names itself replaces a file or link of a lower one.
            parent = self._onto.enter(parts[:-1], create=True)
            os.unlink(parts[-1], dir_fd=parent)
            self._onto.enter(parts, create=True)

    def _file(self, entry: Entry) -> None:
        directory, _, name = entry.path.rpartition("/")
        try:
            if directory != self._directory:
                self._enter(directory)
            if self._layer.fresh is None and not _unchanged(entry, name, self._source):
                raise LayerDamaged(self._layer, entry.path)
            self._link(name)
        except FileNotFoundError:
            raise LayerDamaged(self._layer, entry.path) from None
        except OSError as error:
            raise _through(entry, error) from error

    def _enter(self, directory: str) -> None:
        parts = tuple(directory.split("/")) if directory else ()
        self._directory = None
        self._parent = self._onto.enter(parts, create=True)
        self._source = self._from.enter(parts, create=False)
        self._directory = directory

    def _link(self, name: str) -> None:
        try:
            os.link(name, name, src_dir_fd=self._source, dst_dir_fd=self._parent, follow_symlinks=False)
        except FileExistsError:
            self._clear(self._parent, name, tuple(f"{self._directory}/{name}".lstrip("/").split("/")))
            os.link(name, name, src_dir_fd=self._source, dst_dir_fd=self._parent, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP):
                raise
            _copy(self._source, self._parent, name)  # a filesystem that cannot link, or a file with too many names

    def _link_below(self, entry: Entry, parts: Parts) -> None:
        target = tuple(entry.link.split("/"))
        try:
            source = os.dup(self._onto.enter(target[:-1], create=False))
        except FileNotFoundError as error:
            raise UnsafeArchive(
                f"Hard link {entry.path[:120]!a} points to {entry.link[:120]!a}, which does not exist."
            ) from error
        try:
            status = os.stat(target[-1], dir_fd=source, follow_symlinks=False)
            if (status.st_mode & 0o170000) != 0o100000:
                raise UnsafeArchive(f"A hard link points to {entry.link[:120]!a}, which is not a regular file.")
            parent = self._onto.enter(parts[:-1], create=True)
            if parts != target:
                self._clear(parent, parts[-1], parts)
                os.link(target[-1], parts[-1], src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError as error:
            raise UnsafeArchive(
                f"Hard link {entry.path[:120]!a} points to {entry.link[:120]!a}, which does not exist."
            ) from error
        finally:
            os.close(source)

    def _clear(self, directory: int, name: str, parts: Parts) -> None:
        """Removes `name`, which may be a whole tree, through descriptors only."""
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
            try:
                for child in os.listdir(descriptor):
                    self._clear(descriptor, child, (*parts, child))
            finally:
                os.close(descriptor)
            self._onto.forget(parts)
            os.rmdir(name, dir_fd=directory)


def _through(entry: Entry, error: OSError) -> Exception:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return UnsafeArchive(f"{entry.path[:120]!a} has a path component that is not a directory.")
    return error


def _unchanged(entry: Entry, name: str, parent: int) -> bool:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return status.st_size == entry.size and status.st_mtime_ns == entry.mtime_ns


def _copy(source: int, target: int, name: str) -> None:
    reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source)
    try:
        status = os.fstat(reading)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        writing = os.open(name, flags, status.st_mode & 0o777, dir_fd=target)
        try:
            while chunk := os.read(reading, 1 << 20):
                os.write(writing, chunk)
            os.utime(writing, ns=(status.st_mtime_ns, status.st_mtime_ns))
        finally:
            os.close(writing)
    finally:
        os.close(reading)
