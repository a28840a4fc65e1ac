"""Sends files to a worker's file server with sendfile. Files that are there are skipped; broken transfers resume."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from urllib.parse import quote, urlsplit

from corral.core.errors import Conflict, CorralError, NotFound, OutcomeUnknown, Unavailable
from corral.core.sizes import format_bytes
from corral.system.http_call import HttpAnswer, ResponseParser, request_head
from corral.system.local_files import LocalFile
from corral.system.worker_files import FileServer

SLICE_BYTES = 8 << 20
STALL_S = 120.0
ANSWER_WITHIN_S = 600.0
"""After the last byte, because the receiver may still have to hash the part that it had before."""
ASKED_FROM_BYTES = 1 << 20
"""From this size on, the sender waits for `100 Continue` before it sends the file."""
CONTINUE_WITHIN_S = 5.0
ANSWER_MOST_BYTES = 64 << 10
RETRY_FIRST_S, RETRY_LONGEST_S = 0.01, 30.0
TRIES_WITHOUT_PROGRESS = 14
"""Attempts in a row that transferred no byte."""


async def upload(
    server: FileServer, file: LocalFile, *, sha256: str, on_bytes: Callable[[int], None] = lambda _: None
) -> int:
    """Sends a file and returns the number of bytes sent. Calls `on_bytes` for each part. Raises when attempts in a row
    transfer nothing."""
    sent, without_progress, delay_s = 0, 0, RETRY_FIRST_S
    reached = -1
    problem: Exception | None = None
    while without_progress < TRIES_WITHOUT_PROGRESS:
        try:
            offset = await _offset(server, file, sha256)
            if offset is None:
                return sent
            if offset > reached:
                reached, without_progress, delay_s = offset, 0, RETRY_FIRST_S
            counter = _Counter(on_bytes)
            try:
                done = await _put(server, file, sha256, offset, counter)
            finally:
                sent += counter.count
            if done:
                return sent
        except OSError as error:
            problem = error
            without_progress += 1
            await asyncio.sleep(delay_s)
            delay_s = min(RETRY_LONGEST_S, delay_s * 2)
    raise Unavailable(f"{file.path.name} could not be sent to {server.url}: {problem or 'no progress'}")


class _Counter:
    def __init__(self, listener: Callable[[int], None]) -> None:
        self.count = 0
        self._listener = listener

    def add(self, count: int) -> None:
        self.count += count
        self._listener(count)


async def _offset(server: FileServer, file: LocalFile, sha256: str) -> int | None:
    """Where to resume. None when the receiver has the whole file."""
    answer = await _exchange(server, "HEAD", file.key, {})
    if 400 <= answer.status < 500:
        return 0  # there is none, or the answer to PUT says why it is rejected: that to HEAD has no body
    if answer.status != 200:
        raise _refused(answer, file)
    if answer.headers.get("x-content-sha256") == sha256:
        return None
    size = int(answer.headers.get("x-file-size", "0"))
    return size if answer.headers.get("x-target-sha256") == sha256 and size < file.size else 0


async def _put(server: FileServer, file: LocalFile, sha256: str, offset: int, counter: _Counter) -> bool:
    """Sends the rest of the file in one request. False when the receiver requires another offset."""
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


def _refused(answer: HttpAnswer, file: LocalFile) -> CorralError:
    reason = answer.body.decode(errors="replace").strip()[:300]
    text = f"{file.path.name} ({format_bytes(file.size)}) was rejected with status {answer.status}"
    text += f": {reason}" if reason else ""
    match answer.status:
        case 413 | 507:
            return Unavailable(text)
        case status if status < 500:
            return Conflict(text)
        case _:
            return OutcomeUnknown(text)


@dataclass(frozen=True, slots=True)
class _Rest:
    """The part of a file that is still to be sent."""

    file: LocalFile
    offset: int
    counter: _Counter


async def _exchange(
    server: FileServer, method: str, key: str, headers: dict[str, str], *, body: _Rest | None = None
) -> HttpAnswer:
    address = urlsplit(server.url)
    if address.hostname is None:
        raise NotFound(f"{server.url!r} is not an address")
    headers = {"Authorization": f"Bearer {server.token}", **headers}
    head = request_head(method, f"{server.url}/v1/files/{quote(key)}", headers)
    async with asyncio.timeout(STALL_S):
        connection = await _connect(address.hostname, address.port or 80)
    response = ResponseParser(method)
    with connection:
        async with asyncio.timeout(STALL_S):
            await asyncio.get_running_loop().sock_sendall(connection, head)
        if body is not None:
            if "Expect" in headers:
                await _wait_for_continue(connection, response)
            if not response.has_head:
                await _send(connection, body)
        async with asyncio.timeout(STALL_S if response.has_head else ANSWER_WITHIN_S):
            return await _read_response(connection, response)


async def _wait_for_continue(connection: socket.socket, response: ResponseParser) -> None:
    """Waits until the receiver accepts or rejects the file. A receiver that does not know the question is silent."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONTINUE_WITHIN_S):
            while not response.may_continue and not response.has_head:
                await _receive(connection, response)


async def _read_response(connection: socket.socket, response: ResponseParser) -> HttpAnswer:
    body = response.take_body()
    while not response.is_complete and len(body) < ANSWER_MOST_BYTES:
        await _receive(connection, response)
        body += response.take_body()
    return HttpAnswer(response.status, body, response.headers)


async def _receive(connection: socket.socket, response: ResponseParser) -> None:
    response.feed(await asyncio.get_running_loop().sock_recv(connection, ANSWER_MOST_BYTES))


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
        except BaseException:  # cancelled
            connection.close()
            raise
        else:
            return connection
    raise problem or OSError(f"{host} has no address")


async def _send(connection: socket.socket, rest: _Rest) -> None:
    """Sends from the page cache to the socket without copying through this process."""
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
    """Sends as much as the socket takes now; None when it takes nothing. It runs in a thread: it may read the disk.
    A cancelled caller waits until the thread no longer uses the socket and the file."""
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
