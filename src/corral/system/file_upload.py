"""Sends files to a worker's file server: what is there is not sent again, a cut connection goes on where it broke."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from corral.core.errors import Conflict, CorralError, NotFound, OutcomeUnknown, Unavailable
from corral.core.sizes import format_bytes
from corral.system.worker_files import FileServer

SLICE_BYTES = 1 << 20
HASH_BYTES = 4 << 20
STALL_S = 120.0
ANSWER_WITHIN_S = 600.0
"""After the last byte: the receiver may still have to hash what it got before us."""
RETRY_FIRST_S, RETRY_LONGEST_S = 0.05, 30.0
FRUITLESS_TRIES = 12
"""In a row without a single byte getting there."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    key: str
    """As the receiver knows it, for example `models/tiny.gguf`."""
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class _Cut(Exception):
    """The connection broke; what arrived is kept."""


class HashBook:
    """SHA-256 of local files, worked out once for each state of a file."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], str] = {}

    async def sha256(self, path: Path) -> str:
        status = await asyncio.to_thread(path.stat)
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._known:
            self._known[key] = await asyncio.to_thread(_sha256, path)
        return self._known[key]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while part := file.read(HASH_BYTES):
            digest.update(part)
    return digest.hexdigest()


def list_files(root: Path, name: str, *, prefix: str) -> list[LocalFile]:
    """The file of that name, or every regular file below the directory. Links are not followed out of the root."""
    start = root / name
    home = root.resolve()
    if not start.resolve().is_relative_to(home):
        return []
    found = []
    for path in _walk(start):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            found.append(LocalFile(f"{prefix}{path.relative_to(root)}", path, status.st_size))
    return found


def _walk(start: Path) -> Iterator[Path]:
    if start.is_dir() and not start.is_symlink():
        for directory, _, names in os.walk(start):
            yield from (Path(directory, name) for name in sorted(names))
    elif start.exists():
        yield start


async def upload(
    server: FileServer, file: LocalFile, *, sha256: str, on_bytes: Callable[[int], None] = lambda _: None
) -> int:
    """Returns how many bytes were sent. `on_bytes` is told each advance. Raises when it makes no headway at all."""
    sent, fruitless, delay_s = 0, 0, RETRY_FIRST_S
    reached = -1
    problem: Exception | None = None
    while fruitless < FRUITLESS_TRIES:
        try:
            offset = await _offset(server, file, sha256)
            if offset is None:
                return sent
            if offset > reached:
                reached, fruitless, delay_s = offset, 0, RETRY_FIRST_S
            counter = _Counter(on_bytes)
            try:
                done = await _put(server, file, sha256, offset, counter)
            finally:
                sent += counter.count
            if done:
                return sent
        except (_Cut, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            problem = error
            fruitless += 1
            await asyncio.sleep(delay_s)
            delay_s = min(RETRY_LONGEST_S, delay_s * 2)
    raise Unavailable(f"{file.path.name} could not be sent to {server.url}: {problem or 'it made no headway'}")


class _Counter:
    def __init__(self, listener: Callable[[int], None]) -> None:
        self.count = 0
        self._listener = listener

    def add(self, count: int) -> None:
        self.count += count
        self._listener(count)


async def _offset(server: FileServer, file: LocalFile, sha256: str) -> int | None:
    """Where to go on; None when the whole file is there."""
    answer = await _exchange(server, "HEAD", file.key, {})
    if answer.status == 404:
        return 0
    if answer.status != 200:
        raise _refused(answer, file)
    if answer.headers.get("x-content-sha256") == sha256:
        return None
    size = int(answer.headers.get("x-file-size", "0"))
    return size if answer.headers.get("x-target-sha256") == sha256 and size < file.size else 0


async def _put(server: FileServer, file: LocalFile, sha256: str, offset: int, counter: _Counter) -> bool:
    """The rest of the file in one request. False when the receiver wants it from somewhere else."""
    headers = {"X-Content-SHA256": sha256, "Content-Length": str(file.size - offset)}
    if file.size:
        headers["Content-Range"] = f"bytes {offset}-{file.size - 1}/{file.size}"
    answer = await _exchange(server, "PUT", file.key, headers, file=file, offset=offset, counter=counter)
    match answer.status:
        case 200:
            return True
        case 308 | 409 | 416:
            return False
        case _:
            raise _refused(answer, file)


def _refused(answer: _Answer, file: LocalFile) -> CorralError:
    text = answer.body.decode(errors="replace").strip()[:300]
    told = f"{file.path.name} ({format_bytes(file.size)}) was refused with status {answer.status}: {text}"
    return Conflict(told) if answer.status < 500 else OutcomeUnknown(told)


async def _exchange(
    server: FileServer,
    method: str,
    key: str,
    headers: dict[str, str],
    *,
    file: LocalFile | None = None,
    offset: int = 0,
    counter: _Counter | None = None,
) -> _Answer:
    address = urlsplit(server.url)
    if address.hostname is None:
        raise NotFound(f"{server.url!r} is not an address")
    async with asyncio.timeout(STALL_S):
        reader, writer = await asyncio.open_connection(address.hostname, address.port or 80)
    try:
        lines = [
            f"{method} /v1/files/{quote(key)} HTTP/1.1",
            f"Host: {address.netloc}",
            f"Authorization: Bearer {server.token}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await writer.drain()
        if file is not None and counter is not None:
            await _send_file(writer, file, offset, counter)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await _read_answer(reader, head_only=method == "HEAD")
    finally:
        writer.transport.abort()


async def _send_file(writer: asyncio.StreamWriter, file: LocalFile, offset: int, counter: _Counter) -> None:
    """The next slice is read from the disk while this one is on its way."""
    with file.path.open("rb", buffering=0) as source:
        source.seek(offset)
        coming = asyncio.ensure_future(asyncio.to_thread(source.read, SLICE_BYTES))
        try:
            while offset < file.size:
                part = (await coming)[: file.size - offset]
                if not part:
                    raise Conflict(f"{file.path} became shorter while it was sent")
                coming = asyncio.ensure_future(asyncio.to_thread(source.read, SLICE_BYTES))
                writer.write(part)
                async with asyncio.timeout(STALL_S):
                    await writer.drain()
                offset += len(part)
                counter.add(len(part))
        finally:
            await asyncio.wait({coming})


async def _read_answer(reader: asyncio.StreamReader, *, head_only: bool) -> _Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in rest if ":" in line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = b"" if head_only else await reader.read(64 << 10)
    try:
        status = int(first.split(" ")[1])
    except (IndexError, ValueError):
        raise _Cut(f"not an answer: {first[:80]}") from None
    return _Answer(status, headers, body)
