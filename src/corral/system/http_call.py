"""The asynchronous HTTP client for workers, frontends and the shared S3 storage. It opens one connection per request,
follows no redirect and uses no proxy, so it needs a fraction of the memory of a general client."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import httptools

from corral.core.replicas.attached import ServerTrust
from corral.system.server_trust import UntrustedServer, check_peer, tls_context

LARGEST_ANSWER_BYTES = 16 << 20
HEAD_BYTES = 64 << 10
READ_BYTES = 256 << 10
WRITE_BYTES = 256 << 10


class NoConnection(OSError):
    """No server received the request."""


class NoAnswer(OSError):
    """A server may have received the request. Its outcome is unknown."""


@dataclass(slots=True)
class HttpAnswer:
    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""


class HttpCall(Protocol):
    """One request to another machine. Raises NoConnection or NoAnswer; any status is an answer."""

    async def __call__(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str], within_s: float
    ) -> HttpAnswer: ...


class ResponseParser:
    """Parses the bytes of one response. Raises NoAnswer when they are not a complete HTTP response."""

    def __init__(self, method: str) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.is_complete = False
        self.may_continue = False
        """The server sent `100 Continue`."""
        self._is_head_request = method == "HEAD"
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Takes the next bytes. An empty value means that the server closed the connection."""
        if not data:
            is_framed = "content-length" in self.headers or "transfer-encoding" in self.headers
            if not self.has_head or is_framed:
                raise NoAnswer("the connection was closed before the response was complete")
            self.is_complete = True
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise NoAnswer(f"the response is not valid HTTP: {error}") from error
        if not self.has_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                raise NoAnswer(f"the response headers are larger than {HEAD_BYTES >> 10} KiB")

    def take_body(self) -> bytes:
        """The part of the body that has arrived and was not taken before."""
        body = b"".join(self._body)
        self._body.clear()
        return body

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # interim: the real response follows
            self.may_continue = self.may_continue or status == 100
            self.headers.clear()
            return
        self.status, self.has_head = status, True
        self.is_complete = self._is_head_request

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = self.has_head


class HttpStream:
    """A response whose body is read piece by piece."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, *, stall_s: float
    ) -> None:
        self._reader, self._writer = reader, writer
        self._parser = ResponseParser(method)
        self._stall_s = stall_s

    @property
    def status(self) -> int:
        return self._parser.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        return self._parser.headers

    async def read(self) -> bytes:
        """The next piece of the body. Empty at its end."""
        while not (piece := self._parser.take_body()) and not self._parser.is_complete:
            await self._receive()
        return piece

    async def read_all(self, most_bytes: int = LARGEST_ANSWER_BYTES) -> bytes:
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > most_bytes:
                raise NoAnswer(f"the response is larger than {most_bytes >> 20} MiB")
        return bytes(body)

    async def start(self, request: bytes, body: bytes) -> None:
        """Sends the request and waits for the head of the response."""
        try:
            self._writer.write(request)
            rest = memoryview(body)
            while rest:
                self._writer.write(rest[:WRITE_BYTES])
                rest = rest[WRITE_BYTES:]
                async with asyncio.timeout(self._stall_s):
                    await self._writer.drain()
        except TimeoutError:
            raise NoAnswer(f"the server accepted no data for {self._stall_s:g} s") from None
        except OSError as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
        while not self._parser.has_head:
            await self._receive()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _receive(self) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                data = await self._reader.read(READ_BYTES)
        except TimeoutError:
            raise NoAnswer(f"no data arrived within {self._stall_s:g} s") from None
        except OSError as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
        self._parser.feed(data)


@asynccontextmanager
async def open_http(
    method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str], stall_s: float
) -> AsyncIterator[HttpStream]:
    """Sends a request and yields its response. Only silence ends it: each step may take `stall_s`."""
    request = request_head(method, url, {"Content-Length": str(len(body)), **headers})
    stream = await _connect(method, url, stall_s)
    try:
        await stream.start(request, body)
        yield stream
    finally:
        stream.abort()


async def http_call(
    method: str,
    url: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str],
    within_s: float,
    most_bytes: int = LARGEST_ANSWER_BYTES,
    trust: ServerTrust | None = None,
) -> HttpAnswer:
    """Sends a request and reads the whole response. Raises NoConnection or NoAnswer; any status is an answer. `trust`:
    how the certificate of an HTTPS server is checked, if not by the system's certificate authorities."""
    request = request_head(method, url, {"Content-Length": str(len(body)), **headers})
    until_s = asyncio.get_running_loop().time() + within_s
    stream = await _connect(method, url, within_s, trust)
    try:
        async with asyncio.timeout_at(until_s):
            await stream.start(request, body)
            content = await stream.read_all(most_bytes)
    except TimeoutError:
        raise NoAnswer(f"no complete response within {within_s:g} s") from None
    finally:
        stream.abort()
    return HttpAnswer(stream.status, content, stream.headers)


def request_head(method: str, url: str, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{method} {target} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Connection: close", "", ""]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break in an address or a header")
    return "\r\n".join(lines).encode()


async def _connect(method: str, url: str, within_s: float, trust: ServerTrust | None = None) -> HttpStream:
    parts = urlsplit(url)
    trust = trust or ServerTrust()
    tls = tls_context(trust) if parts.scheme == "https" else None
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if tls else 80), ssl=tls)
        if tls is not None:
            try:
                check_peer(writer.transport, trust)
            except UntrustedServer:
                writer.transport.abort()
                raise
    except OSError as error:  # a timeout is one too
        raise NoConnection(str(error) or f"no connection within {within_s:g} s") from error
    return HttpStream(reader, writer, method, stall_s=within_s)
