"""Writes a tree of untrusted names. Every step goes through the descriptor of its parent directory and follows no link,
so no path can lead outside, whatever the archive did before."""

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Literal, NoReturn

import msgspec

from corral.artifacts.cancel import CancelToken
from corral.artifacts.disk.flush import start_writeback
from corral.artifacts.errors import UnsafeArchive, disk_errors
from corral.artifacts.unpack.budget import UnpackBudget
from corral.artifacts.unpack.inflate import fast_zlib
from corral.artifacts.unpack.small_files import SmallFileFailed, SmallFiles

Parts = tuple[str, ...]

NAME_BYTES = 255
LARGE_BYTES = 1 << 20
SMALL_BYTES = 64 * 1024
FEW_FILES = 256
"""This many small files are written here before starting a child process pays off."""
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of a layer's index. `link` is a symlink's target, or the path a deferred hard link points at."""

    kind: Literal["dir", "file", "symlink", "hardlink", "whiteout", "opaque"]
    path: str
    size: int = 0
    mtime_ns: int = 0
    link: str = ""
    crc: int | None = None
    """Checksum of a file's content, to detect damage. A second hard link of a file has none."""


def member_parts(name: bytes, *, depth: int) -> Parts:
    """The parts of an archive member's name. Rejects absolute names and names that leave the root."""
    if b"\0" in name:
        raise UnsafeArchive("A member's name contains a NUL byte.")
    if name.startswith(b"/") and name.strip(b"/"):  # the root itself is what `umoci insert` writes first
        raise UnsafeArchive(f"Member {_shown(name)} has an absolute name.")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise UnsafeArchive(f"Member {_shown(name)} leaves the root directory with `..`.")
    if len(parts) > depth:
        raise UnsafeArchive(f"Member {_shown(name)} is {len(parts)} directories deep; the limit is {depth}.")
    if any(len(part) > NAME_BYTES for part in parts):
        raise UnsafeArchive(f"Member {_shown(name)} has a part longer than {NAME_BYTES} bytes.")
    return tuple(os.fsdecode(part) for part in parts)


class MemberNames:
    """The parts of one archive's names. Neighbours are often in the same directory, so a directory is checked once for
    all members that follow each other in it."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._directory: bytes | None = None
        self._parent: Parts = ()

    def parts(self, name: bytes) -> Parts:
        directory, slash, last = name.rpartition(b"/")
        directory += slash  # `/file` and `file` have different ones
        plain = last not in (b"", b".", b"..") and len(last) <= NAME_BYTES and b"\0" not in last
        if plain and directory == self._directory:
            return (*self._parent, os.fsdecode(last))
        parts = member_parts(name, depth=self._depth)
        if plain:
            self._directory, self._parent = directory, parts[:-1]
        return parts


def _shown(name: bytes) -> str:
    return ascii(name[:120].decode("utf-8", "replace"))


def contained_link(parts: Parts, target: str) -> str:
    """A symlink's target as a process inside the image would see it: `/` is the image's root and `..` stops there.
    The result is relative and never leads out of the tree.

    `..` is only ever kept at the front, and never more of it than there are real directories above the link. After a
    name it would climb from wherever that name leads, and if the name is a link itself, that is not where the text
    says."""
    if not target or "\0" in target:
        raise UnsafeArchive(f"Link {'/'.join(parts)[:120]!a} has no usable target.")
    here = [] if target.startswith("/") else list(parts[:-1])
    as_written, below_a_name = not target.startswith("/"), False
    for part in target.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            as_written = as_written and bool(here) and not below_a_name
            del here[-1:]
        else:
            below_a_name = True
            here.append(part)
    if as_written:
        return target
    return "/".join([".."] * (len(parts) - 1) + here) or "."


class DirectoryStack:
    """Open descriptors from the root to the last used directory. Neighbours are often in the same directory, so most
    members need no new one."""

    def __init__(self, root: int) -> None:
        self._parts: Parts = ()
        self._descriptors = [root]

    def is_at(self, parts: Parts) -> bool:
        return parts == self._parts

    def enter(self, parts: Parts, *, create: bool) -> int:
        if parts != self._parts:
            common = 0
            for mine, wanted in zip(self._parts, parts, strict=False):
                if mine != wanted:
                    break
                common += 1
            self._shrink(common)
            for part in parts[common:]:
                self._descriptors.append(self._open(self._descriptors[-1], part, create=create))
                self._parts = (*self._parts, part)
        return self._descriptors[-1]

    def _open(self, parent: int, part: str, *, create: bool) -> int:
        try:
            return os.open(part, DIRECTORY_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            if not create:
                raise
            os.mkdir(part, 0o755, dir_fd=parent)
            return os.open(part, DIRECTORY_FLAGS, dir_fd=parent)

    def _shrink(self, length: int) -> None:
        self._parts = self._parts[:length]
        while len(self._descriptors) > length + 1:
            os.close(self._descriptors.pop())

    def forget(self, parts: Parts) -> None:
        """Closes the descriptors of a directory that is about to be removed."""
        if self._parts[: len(parts)] == parts:
            self._shrink(len(parts) - 1)

    def close(self) -> None:
        self._shrink(0)


class TreeWriter:
    """Writes members below one directory and keeps the list of what it wrote.

    Files lose their write bits: they are shared between versions by hard link, and a process that writes into one
    would change the others. Set-user-id bits, extended attributes and owners are not taken over.
    """

    def __init__(self, root: int, budget: UnpackBudget, cancel: CancelToken) -> None:
        self._budget = budget
        self._cancel = cancel
        self._stack = DirectoryStack(root)
        self._file_mode_kept = _modes_survive(root)
        self._directories: set[Parts] = set()  # all that exist
        self._listed: set[Parts] = set()  # those the archive names itself
        self._entries: list[Entry] = []
        self._few_left = FEW_FILES
        self._small: SmallFiles | None = None
        self.bytes_written = 0
        self.bytes_taken = self.members_taken = 0
        """What the budget was charged."""

    def finish(self) -> list[Entry]:
        """Everything that was written, after it is complete."""
        self._settle_small()
        return self._entries

    def close(self) -> None:
        """Must be called in any case. Without `finish` before it, some files may be missing."""
        self._stack.close()
        if self._small is not None:
            self._small.close()

    def directory(self, parts: Parts) -> None:
        if not parts or parts in self._listed:
            return
        self._parent((*parts, ""))
        self._listed.add(parts)
        self._entries.append(Entry("dir", "/".join(parts)))

    def file(self, parts: Parts, *, size: int, executable: bool, mtime_s: float, pieces: Iterable[memoryview]) -> None:
        if size <= SMALL_BYTES:
            data, pieces = _whole(pieces)
            if data is not None:
                self.small_file(parts, data, executable=executable, mtime_s=mtime_s)
                return
        self._take(size)
        self._write_here(parts, self._parent(parts), _mode(executable), _nanoseconds(mtime_s), pieces)

    def _take(self, size: int) -> None:
        self.members_taken += 1
        self._budget.member(size)
        self.bytes_taken += size

    def small_file(self, parts: Parts, data: bytes, *, executable: bool, mtime_s: float) -> None:
        self._take(len(data))
        parent, mode, mtime_ns = self._parent(parts), _mode(executable), _nanoseconds(mtime_s)
        small = self._child_for_small()
        if small is None:
            self._write_here(parts, parent, mode, mtime_ns, (memoryview(data),))
            return
        try:
            small.add(parts, parent, mode=mode, mtime_ns=mtime_ns, data=data)
        except SmallFileFailed as failed:
            self._refuse_small(failed.parts, failed.cause)
        except OSError as error:
            self._refuse_small(parts, error)
        self.bytes_written += len(data)
        self._entries.append(Entry("file", "/".join(parts), len(data), mtime_ns, crc=fast_zlib.crc32(data)))

    def _write_here(self, parts: Parts, parent: int, mode: int, mtime_ns: int, pieces: Iterable[memoryview]) -> None:
        with disk_errors(f"unpacking {parts[-1]}"):
            written, crc = self._written(parts, parent, mode, mtime_ns, pieces)
        self.bytes_written += written
        self._entries.append(Entry("file", "/".join(parts), written, mtime_ns, crc=crc))

    def _written(
        self, parts: Parts, parent: int, mode: int, mtime_ns: int, pieces: Iterable[memoryview]
    ) -> tuple[int, int]:
        """The size and the checksum of what was written."""
        try:
            descriptor = os.open(parts[-1], CREATE_FLAGS, mode, dir_fd=parent)
        except OSError as error:
            raise self._refusal(parts, error) from error
        try:
            written = crc = 0
            for piece in pieces:
                self._cancel.check()
                view = piece
                crc = fast_zlib.crc32(piece, crc)
                while view:
                    view = view[os.write(descriptor, view) :]
                written += len(piece)
            if not self._file_mode_kept:
                os.fchmod(descriptor, mode)
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            if written >= LARGE_BYTES:
                start_writeback(descriptor)
        finally:
            os.close(descriptor)
        return written, crc

    def _child_for_small(self) -> SmallFiles | None:
        self._few_left -= 1
        if self._few_left == 0:
            with suppress(OSError):  # a machine that allows no more processes: slower, and as good
                self._small = SmallFiles(self._cancel)
        return self._small

    def _settle_small(self) -> None:
        """Writes pending files before a member that may refer to them."""
        if self._small is None:
            return
        try:
            self._small.settle()
        except SmallFileFailed as failed:
            self._refuse_small(failed.parts, failed.cause)

    def _refuse_small(self, parts: Parts, error: OSError) -> NoReturn:
        with disk_errors(f"unpacking {parts[-1]}"):
            raise self._refusal(parts, error) from error

    def symlink(self, parts: Parts, target: str) -> None:
        self._take(0)
        parent = self._parent(parts)
        inside = contained_link(parts, target)
        with disk_errors(f"unpacking {parts[-1]}"):
            try:
                os.symlink(inside, parts[-1], dir_fd=parent)
            except OSError as error:
                raise self._refusal(parts, error) from error
        self._entries.append(Entry("symlink", "/".join(parts), link=inside))

    def hardlink(self, parts: Parts, target: Parts) -> None:
        """A hard link to a file of this archive, or, recorded for later, to one in a layer below."""
        self._take(0)
        if not target or not parts:
            raise UnsafeArchive("A hard link has no name.")
        self._settle_small()
        parent = self._parent(parts)
        found = self._find_regular(target)
        if found is None:
            self._entries.append(Entry("hardlink", "/".join(parts), link="/".join(target)))
            return
        source, status = found
        parent = self._parent(parts)
        with disk_errors(f"unpacking {parts[-1]}"):
            try:
                os.link(target[-1], parts[-1], src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
            except OSError as error:
                raise self._refusal(parts, error) from error
            finally:
                os.close(source)
        self._entries.append(Entry("file", "/".join(parts), status.st_size, status.st_mtime_ns))

    def note(self, kind: Literal["whiteout", "opaque"], parts: Parts) -> None:
        """A deletion. It concerns lower layers only, so nothing here is touched."""
        self._take(0)
        self._settle_small()
        home = parts if kind == "opaque" else parts[:-1]
        try:
            self._stack.enter(home, create=False)
        except FileNotFoundError:
            pass  # the directory is one of a lower layer
        except OSError as error:
            raise self._refusal(parts, error) from error
        self._entries.append(Entry(kind, "/".join(parts)))

    def _find_regular(self, parts: Parts) -> tuple[int, os.stat_result] | None:
        try:
            parent = os.dup(self._stack.enter(parts[:-1], create=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refusal(parts, error) from error
        try:
            status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            os.close(parent)
            return None
        if (status.st_mode & 0o170000) != 0o100000:
            os.close(parent)
            raise UnsafeArchive(f"A hard link points to {'/'.join(parts)[:120]!a}, which is not a regular file.")
        return parent, status

    def _parent(self, parts: Parts) -> int:
        """Called for every member, so a cancel also stops an archive of many small files."""
        self._cancel.check()
        if not parts:
            raise UnsafeArchive("A member without a name would replace the root itself.")
        parent = parts[:-1]
        if parent in self._directories and self._stack.is_at(parent):
            return self._stack.enter(parent, create=False)
        if parent and parent not in self._directories:
            for depth in range(1, len(parent) + 1):
                if parent[:depth] not in self._directories:
                    self._take(0)  # a directory nobody listed costs an inode all the same
                    self._directories.add(parent[:depth])
        return self._enter(parent)

    def _enter(self, parts: Parts) -> int:
        with disk_errors(f"unpacking {'/'.join(parts)[:120]}"):
            try:
                return self._stack.enter(parts, create=True)
            except OSError as error:
                raise self._refusal(parts, error) from error

    def _refusal(self, parts: Parts, error: OSError) -> Exception:
        shown = ascii("/".join(parts)[:120])
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return UnsafeArchive(f"Member {shown} has a path component that is not a directory.")
        if error.errno in (errno.EEXIST, errno.EISDIR):
            return UnsafeArchive(f"Member {shown} appears twice.")
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
            return UnsafeArchive(f"Member {shown} has a name that this filesystem does not support.")
        return error


def _mode(executable: bool) -> int:
    return 0o555 if executable else 0o444


def _nanoseconds(mtime_s: float) -> int:
    return int(min(max(mtime_s, 0.0), 2.0**33) * 1_000_000_000)


def _whole(pieces: Iterable[memoryview]) -> tuple[bytes | None, Iterable[memoryview]]:
    """The content if it is as small as it claims, else the unread pieces."""
    kept: list[memoryview] = []
    count = 0
    iterator = iter(pieces)
    for piece in iterator:
        kept.append(piece)
        count += len(piece)
        if count > SMALL_BYTES:
            return None, chain(kept, iterator)
    return b"".join(kept), ()


def _modes_survive(root: int) -> bool:
    """Whether the process's umask keeps read and execute bits. Checking costs one file; setting the umask would be a
    race."""
    probe = os.open(".umask", CREATE_FLAGS, 0o555, dir_fd=root)
    try:
        return os.fstat(probe).st_mode & 0o777 == 0o555
    finally:
        os.close(probe)
        os.unlink(".umask", dir_fd=root)
