"""Reads a tar stream: ustar, pax and GNU long names, and nothing that a layer does not need."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isnan

from corral.artifacts.errors import UnsafeArchive
from corral.artifacts.unpack.tree import SMALL_BYTES, MemberNames, Parts, TreeWriter

BLOCK = 512
EXTENSION_BYTES = 1 << 20  # names and attributes of one member; a real one has a few hundred
_ZEROS = bytes(BLOCK)
_EXTENSIONS = frozenset((b"x", b"g", b"L", b"K"))
_WHITEOUT = ".wh."
_CUT_SHORT = "The archive ends in the middle of a member."
_OPAQUE = ".wh..wh..opq"


class ChunkReader:
    """Bytes of a chunked stream by count, without copying the bulk of them."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._view = memoryview(b"")

    def take(self, count: int) -> bytes:
        """Exactly `count` bytes; fewer only at the end of the stream."""
        if len(self._view) >= count:
            out, self._view = bytes(self._view[:count]), self._view[count:]
            return out
        return b"".join(self.pieces(count, complete=False))

    def take_all(self, count: int) -> bytes:
        out = self.take(count)
        if len(out) < count:
            raise UnsafeArchive(_CUT_SHORT)
        return out

    def pieces(self, count: int, *, complete: bool = True) -> Iterator[memoryview]:
        while count:
            if not self._view:
                chunk = next(self._chunks, None)
                if chunk is None:
                    if complete:
                        raise UnsafeArchive(_CUT_SHORT)
                    return
                self._view = memoryview(chunk)
            piece = self._view[:count]
            self._view = self._view[len(piece) :]
            count -= len(piece)
            yield piece

    def skip(self, count: int) -> None:
        if len(self._view) >= count:
            self._view = self._view[count:]
            return
        for _ in self.pieces(count):
            pass

    def skip_padding(self, size: int) -> None:
        """Skips the padding of a member's last block. Some writers leave it out at the very end."""
        if padding := -size % BLOCK:
            self.take(padding)

    def drain(self) -> None:
        """Reads to the end, because the digest covers the padding too."""
        self._view = memoryview(b"")
        for _ in self._chunks:
            pass


@dataclass(slots=True)
class _Extension:
    """What pax and GNU headers state about the next member."""

    path: bytes | None = None
    linkpath: bytes | None = None
    size: int | None = None
    mtime_s: float | None = None


def unpack_tar(chunks: Iterable[bytes], tree: TreeWriter, *, depth: int, whiteouts: bool) -> None:
    """Writes a tar stream into `tree`. With `whiteouts`, `.wh.` names are recorded as deletions, as in image layers."""
    reader, names = ChunkReader(chunks), MemberNames(depth)
    extension, members = _Extension(), 0
    while header := reader.take(BLOCK):
        if len(header) < BLOCK:
            raise UnsafeArchive("The archive ends in the middle of a header.")
        if header == _ZEROS:
            break
        _check_sum(header)
        kind = header[156:157]
        if kind in _EXTENSIONS:
            _extend(extension, kind, _extension_data(reader, _number(header[124:136])))
            continue
        _member(header, kind, extension, reader, tree, names, whiteouts=whiteouts)
        extension, members = _Extension(), members + 1
    else:
        if not members:
            raise UnsafeArchive("This is not a tar archive: it is empty.")
    reader.drain()


def _member(
    header: bytes,
    kind: bytes,
    extension: _Extension,
    reader: ChunkReader,
    tree: TreeWriter,
    names: MemberNames,
    *,
    whiteouts: bool,
) -> None:
    parts = names.parts(extension.path if extension.path is not None else _name(header))
    size = extension.size if extension.size is not None else _number(header[124:136])
    if kind not in (b"0", b"\0", b"7"):
        # Only regular files have content; a size elsewhere would shift every later member.
        if size and kind not in (b"1", b"2", b"5"):
            raise UnsafeArchive(f"Member {'/'.join(parts)[:120]!a} is of type {kind!r} and has content.")
        size = 0
    if whiteouts and parts and parts[-1].startswith(_WHITEOUT):
        reader.skip(_padded(size))
        _whiteout(parts, tree)
        return
    match kind:
        case b"0" | b"\0" | b"7":
            if kind == b"\0" and _name(header).endswith(b"/"):
                tree.directory(parts)  # how archives older than ustar write directories
                reader.skip(_padded(size))
                return
            mtime_s = extension.mtime_s if extension.mtime_s is not None else _number(header[136:148])
            executable = bool(_number(header[100:108]) & 0o111)
            if size <= SMALL_BYTES:
                tree.small_file(parts, reader.take_all(size), executable=executable, mtime_s=mtime_s)
            else:
                tree.file(parts, size=size, executable=executable, mtime_s=mtime_s, pieces=reader.pieces(size))
            reader.skip_padding(size)
        case b"5":
            tree.directory(parts)
        case b"2":
            target = extension.linkpath if extension.linkpath is not None else _text(header[157:257])
            tree.symlink(parts, target.decode("utf-8", "surrogateescape"))
        case b"1":
            target = extension.linkpath if extension.linkpath is not None else _text(header[157:257])
            tree.hardlink(parts, names.parts(target.removeprefix(b"/")))
        case b"3" | b"4" | b"6":
            raise UnsafeArchive(f"Member {'/'.join(parts)[:120]!a} is a device or a pipe.")
        case _:
            raise UnsafeArchive(f"Member {'/'.join(parts)[:120]!a} is of the unsupported type {kind!r}.")


def _whiteout(parts: Parts, tree: TreeWriter) -> None:
    name = parts[-1]
    if name == _OPAQUE:
        tree.note("opaque", parts[:-1])
        return
    hidden = name.removeprefix(_WHITEOUT)
    if hidden.startswith(_WHITEOUT):
        return  # bookkeeping of AUFS, which the image format tells readers to leave alone
    if hidden in ("", ".", ".."):
        raise UnsafeArchive(f"Whiteout {'/'.join(parts)[:120]!a} names no file in its directory.")
    tree.note("whiteout", (*parts[:-1], hidden))


def _extension_data(reader: ChunkReader, size: int) -> bytes:
    if size > EXTENSION_BYTES:
        raise UnsafeArchive(f"An extended header has {size} bytes; the limit is {EXTENSION_BYTES}.")
    data = reader.take(size)
    if len(data) < size:
        raise UnsafeArchive("The archive ends in the middle of an extended header.")
    reader.skip(-size % BLOCK)
    return data


def _extend(extension: _Extension, kind: bytes, data: bytes) -> None:
    match kind:
        case b"L":
            extension.path = data.rstrip(b"\0")
        case b"K":
            extension.linkpath = data.rstrip(b"\0")
        case b"x":
            for key, value in _pax_records(data):
                _apply_pax(extension, key, value)
        case _:
            # A global header cannot name a single member; its comments are of no use here.
            for key, _ in _pax_records(data):
                if key in (b"path", b"linkpath", b"size"):
                    raise UnsafeArchive("A global header gives every member the same name or size.")


def _apply_pax(extension: _Extension, key: bytes, value: bytes) -> None:
    try:
        if key == b"path":
            extension.path = value
        elif key == b"linkpath":
            extension.linkpath = value
        elif key == b"size":
            extension.size = _decimal(value)
        elif key == b"mtime":
            extension.mtime_s = float(value)
            if isnan(extension.mtime_s):
                raise ValueError("not a time")
    except ValueError as error:
        raise UnsafeArchive(f"An extended header has {key!r} set to {value[:40]!r}.") from error
    if key.startswith(b"GNU.sparse."):
        raise UnsafeArchive("Sparse members are not supported.")


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(data):
        digits, blank, _ = data[at : at + 20].partition(b" ")
        if not blank or not digits.isdigit():
            raise UnsafeArchive("An extended header is damaged.")
        record = data[at + len(digits) + 1 : at + int(digits)]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n") or at + int(digits) > len(data):
            raise UnsafeArchive("An extended header is damaged.")
        yield key, value[:-1]
        at += int(digits)


def _name(header: bytes) -> bytes:
    name = _text(header[:100])
    if header[257:262] == b"ustar" and header[257:265] != b"ustar  \0" and (prefix := _text(header[345:500])):
        return prefix + b"/" + name
    return name


def _text(raw: bytes) -> bytes:
    return raw.split(b"\0", 1)[0]


def _decimal(raw: bytes) -> int:
    if not raw.isdigit() or len(raw) > 19:
        raise ValueError("not a size")
    return int(raw)


def _number(raw: bytes) -> int:
    """Octal text, or GNU's binary form for larger numbers."""
    if raw[0] & 0x80:
        if raw[0] != 0x80:
            raise UnsafeArchive("A header contains a negative number.")
        return int.from_bytes(raw[1:], "big")
    digits = raw.split(b"\0", 1)[0].strip()
    if digits.strip(b"01234567"):  # `int` would also take a sign, a prefix and underscores
        raise UnsafeArchive("A header field is not a number.")
    return int(digits, 8) if digits else 0


def _padded(size: int) -> int:
    return size + (-size % BLOCK)


def _check_sum(header: bytes) -> None:
    # Adler's lower half is one more than the sum of the bytes, modulo 65521, and many times faster than `sum`.
    without_sum = zlib.adler32(header[156:], zlib.adler32(header[:148])) & 0xFFFF
    if (without_sum - 1 + 8 * 0x20 - _number(header[148:156])) % 65521:
        raise UnsafeArchive("A header's checksum is wrong; this is not a tar archive, or it is damaged.")
