"""Sends files to a worker's file server: what is there is not sent again, a cut connection goes on where it broke."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from urllib.parse import quote, urlsplit

from corral.core.errors import Conflict, CorralError, NotFound, OutcomeUnknown, Unavailable
from corral.core.sizes import format_bytes
from corral.system.local_files import LocalFile
from corral.system.worker_files import FileServer

SLICE_BYTES = 8 << 20
STALL_S = 120.0
ANSWER_WITHIN_S = 600.0
"""After the last byte: the receiver may still have to hash what it got before us."""
ASKED_FROM_BYTES = 1 << 20
"""From this size on nothing is sent before the receiver says that it wants it."""
CONTINUE_WITHIN_S = 5.0
ANSWER_MOST_BYTES = 64 << 10
RETRY_FIRST_S, RETRY_LONGEST_S = 0.01, 30.0
FRUITLESS_TRIES = 14
"""In a row without a single byte getting there."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class _Cut(Exception):
    """The connection broke; what arrived is kept."""


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
        except (_Cut, OSError, TimeoutError) as error:
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
    if file.size - offset >= ASKED_FROM_BYTES:
        headers["Expect"] = "100-continue"
    answer = await _exchange(server, "PUT", file.key, headers, body=_Rest(file, offset, counter))
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
    match answer.status:
        case 413 | 507:
            return Unavailable(told)
        case status if status < 500:
            return Conflict(told)
        case _:
            return OutcomeUnknown(told)


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is to be sent of a file."""

    file: LocalFile
    offset: int
    counter: _Counter


async def _exchange(
    server: FileServer, method: str, key: str, headers: dict[str, str], *, body: _Rest | None = None
) -> _Answer:
    address = urlsplit(server.url)
    if address.hostname is None:
        raise NotFound(f"{server.url!r} is not an address")
    lines = [
        f"{method} /v1/files/{quote(key)} HTTP/1.1",
        f"Host: {address.netloc}",
        f"Authorization: Bearer {server.token}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    async with asyncio.timeout(STALL_S):
        line = _Line(await _connect(address.hostname, address.port or 80))
    with line.socket:
        async with asyncio.timeout(STALL_S):
            await asyncio.get_running_loop().sock_sendall(line.socket, ("\r\n".join(lines) + "\r\n\r\n").encode())
        if body is not None:
            early = await line.read_early() if "Expect" in headers else None
            if early is not None:
                return early
            await _send(line.socket, body)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await line.read_answer(head_only=method == "HEAD")


async def _connect(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        try:
            await loop.sock_connect(connection, address)
        except OSError as error:
            connection.close()
            problem = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise problem or OSError(f"{host} has no address")


async def _send(connection: socket.socket, rest: _Rest) -> None:
    """From the file's pages to the socket, without a copy of ours in between."""
    offset, size = rest.offset, rest.file.size
    with rest.file.path.open("rb", buffering=0) as source:
        while offset < size:
            async with asyncio.timeout(STALL_S):
                await _until_writable(connection)
            count = await _slice(connection, source, offset, min(SLICE_BYTES, size - offset))
            if count == 0:
                raise Conflict(f"{rest.file.path} became shorter while it was sent")
            if count is not None:
                offset += count
                rest.counter.add(count)


async def _slice(connection: socket.socket, source: FileIO, offset: int, most: int) -> int | None:
    """As much as the socket takes now; None when it takes nothing. In a thread, because it may have to read the disk;
    whoever is cancelled stays until the thread has let go of both."""
    sending = asyncio.ensure_future(asyncio.to_thread(_sendfile, connection.fileno(), source.fileno(), offset, most))
    try:
        return await asyncio.shield(sending)
    except asyncio.CancelledError:
        await asyncio.wait({sending})
        raise


def _sendfile(connection: int, source: int, offset: int, most: int) -> int | None:
    try:
        return os.sendfile(connection, source, offset, most)
    except BlockingIOError:
        return None


async def _until_writable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(connection, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(connection)


class _Line:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._came = b""

    async def read_early(self) -> _Answer | None:
        """What the receiver says before it got anything: None when it wants the file, or does not know the question."""
        try:
            async with asyncio.timeout(CONTINUE_WITHIN_S):
                await self._receive_until(b"\r\n\r\n")
        except TimeoutError:
            return None
        if self._came.startswith(b"HTTP/1.1 100"):
            self._came = self._came.partition(b"\r\n\r\n")[2]
            return None
        async with asyncio.timeout(STALL_S):
            return await self.read_answer(head_only=False)

    async def read_answer(self, *, head_only: bool) -> _Answer:
        await self._receive_until(b"\r\n\r\n")
        head, _, body = self._came.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in rest)
        headers = {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}
        try:
            status = int(first.split(" ")[1])
        except (IndexError, ValueError):
            raise _Cut(f"not an answer: {first[:80]}") from None
        while not head_only and len(body) < ANSWER_MOST_BYTES and (data := await self._receive()):
            body += data
        return _Answer(status, headers, body)

    async def _receive_until(self, mark: bytes) -> None:
        while mark not in self._came:
            data = await self._receive()
            if not data or len(self._came) > ANSWER_MOST_BYTES:
                raise _Cut("the connection was closed before an answer came")
            self._came += data

    async def _receive(self) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.socket, ANSWER_MOST_BYTES)
