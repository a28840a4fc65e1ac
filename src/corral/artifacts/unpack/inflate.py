"""Decompression in bounded pieces: a small input never becomes a large allocation."""

import bz2
import importlib
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Any

import zstandard

from corral.artifacts.errors import UnsafeArchive

fast_zlib: Any = zlib
with suppress(ImportError):  # not built for every architecture; the standard library is slower and as correct
    fast_zlib = importlib.import_module("isal.isal_zlib")

DAMAGED: tuple[type[Exception], ...] = (zlib.error, fast_zlib.error, lzma.LZMAError, OSError, EOFError)

OUTPUT_BYTES = 256 * 1024  # what an allocator hands out again; larger pieces are new pages of the kernel's each time
ZSTD_WINDOW_BYTES = 1 << 27
XZ_MEMORY_BYTES = 256 << 20


class Compression(Enum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"
    XZ = "xz"
    BZIP2 = "bzip2"


MAGIC = {
    b"\x1f\x8b": Compression.GZIP,
    b"\x28\xb5\x2f\xfd": Compression.ZSTD,
    b"\xfd7zXZ\x00": Compression.XZ,
    b"BZh": Compression.BZIP2,
}


def classify_compression(head: bytes) -> Compression:
    for magic, compression in MAGIC.items():
        if head.startswith(magic):
            return compression
    return Compression.NONE


def inflate(chunks: Iterable[bytes], compression: Compression) -> Iterator[bytes]:
    """The decompressed bytes, in pieces of bounded size."""
    match compression:
        case Compression.NONE:
            return iter(chunks)
        case Compression.GZIP:
            return _members(chunks, lambda: fast_zlib.decompressobj(wbits=31), "gzip")
        case Compression.ZSTD:
            return _zstd(chunks)
        case Compression.XZ:
            return _members(chunks, lambda: _Eager(lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)), "xz")
        case Compression.BZIP2:
            return _members(chunks, lambda: _Eager(bz2.BZ2Decompressor()), "bzip2")


class _Eager:
    """Gives lzma and bz2, which buffer their input, the interface of zlib's objects."""

    unconsumed_tail = b""

    def __init__(self, inner: "lzma.LZMADecompressor | bz2.BZ2Decompressor") -> None:
        self._inner = inner

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def hungry(self) -> bool:
        return self._inner.needs_input

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(data, max_length)


def _members(chunks: Iterable[bytes], new: Any, name: str) -> Iterator[bytes]:
    """Files may contain several compressed members in a row, and often a padding of zeros after the last."""
    current: Any = None
    try:
        for chunk in chunks:
            data = chunk
            while data or (current is not None and not getattr(current, "hungry", True)):
                if current is None:
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    current = new()
                out = current.decompress(data, OUTPUT_BYTES)
                if out:
                    yield out
                if current.eof:
                    data, current = current.unused_data, None
                else:
                    data = current.unconsumed_tail
        while current is not None and not current.eof and (out := current.decompress(b"", OUTPUT_BYTES)):
            yield out  # output that waited inside for room
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UnsafeArchive(f"The {name} data is damaged: {error}.") from error
    if current is not None and not current.eof:
        raise UnsafeArchive(f"The {name} data ends too early.")


class _Pull:
    """Chunks as the file object that zstandard reads from."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def read(self, count: int) -> bytes:
        if not self._rest:
            self._rest = next(self._chunks, b"")
        out, self._rest = self._rest[:count], self._rest[count:]
        return out


def _zstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
    source: Any = _Pull(chunks)
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    reader = decompressor.stream_reader(source, read_size=256 * 1024, read_across_frames=True)
    try:
        while out := reader.read(OUTPUT_BYTES):
            yield out
    except zstandard.ZstdError as error:
        raise UnsafeArchive(f"The zstd data is damaged: {error}.") from error
