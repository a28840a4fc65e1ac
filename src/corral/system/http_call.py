"""One HTTP request and its answer, on the event loop. For small calls between Corral's own parts: no redirects, no
proxies, a connection for each call, and a fraction of the memory of a general client."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import httptools

LARGEST_ANSWER_BYTES = 16 << 20


class NoConnection(OSError):
    """Nobody got the request."""


class NoAnswer(OSError):
    """Somebody may have got the request; what became of it is unknown."""


@dataclass(slots=True)
class HttpAnswer:
    status: int = 0
    body: bytes = b""


@dataclass(slots=True)
class _Reading:
    """What httptools tells us while it reads."""

    body: bytearray = field(default_factory=bytearray)
    done: bool = False

    def on_body(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > LARGEST_ANSWER_BYTES:
            raise ValueError("the answer is too large")

    def on_message_complete(self) -> None:
        self.done = True


class HttpCall(Protocol):
    """One request to another machine. Raises NoConnection or NoAnswer; any status is an answer."""

    async def __call__(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str], within_s: float
    ) -> HttpAnswer: ...


async def http_call(
    method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str], within_s: float
) -> HttpAnswer:
    """Raises NoConnection or NoAnswer; any status is an answer."""
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    request = _request(method, url, body, headers)
    until_s = asyncio.get_running_loop().time() + within_s
    try:
        async with asyncio.timeout_at(until_s):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
    except OSError as error:  # a timeout is one too
        raise NoConnection(str(error) or f"no connection within {within_s:g} s") from error
    try:
        async with asyncio.timeout_at(until_s):
            return await _exchange(reader, writer, request)
    except TimeoutError:
        raise NoAnswer(f"nothing came within {within_s:g} s") from None
    finally:
        writer.transport.abort()


def _request(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{method} {target} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Connection: close", "", ""]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break in an address or a header")
    return "\r\n".join(lines).encode() + body


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> HttpAnswer:
    reading = _Reading()
    parser = httptools.HttpResponseParser(reading)
    try:
        writer.write(request)
        await writer.drain()
        while not reading.done:
            data = await reader.read(65536)
            if not data:
                raise NoAnswer("the connection was closed before the answer was complete")
            parser.feed_data(data)
    except httptools.HttpParserError as error:
        raise NoAnswer(f"what came is not HTTP: {error}") from error
    except NoAnswer:
        raise
    except OSError as error:
        raise NoAnswer(str(error) or type(error).__name__) from error
    return HttpAnswer(parser.get_status_code(), bytes(reading.body))
