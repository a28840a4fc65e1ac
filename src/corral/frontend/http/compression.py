"""Compresses long listings for clients that accept it: a thousand nodes are a megabyte of repetitive JSON."""

import asyncio
import zlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COMPRESSED_FROM_BYTES = 32 * 1024
_LEVEL = 1  # higher levels take three times as long and save a tenth more
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


class CompressedListings:
    """Compresses only complete JSON answers to a GET. Streams pass unchanged and undelayed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _accepts_gzip(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        held: Message | None = None

        async def pass_on(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_long_json(MutableHeaders(raw=message["headers"])):
                held = message  # its final length is known only with the body
                return
            start, held = held, None
            if start is not None:
                message = await _compressed(start, message)
                await send(start)
            await send(message)

        await self._app(scope, receive, pass_on)


def _accepts_gzip(headers: Headers) -> bool:
    for item in headers.get("accept-encoding", "").split(","):
        coding, _, weight = item.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _is_long_json(headers: MutableHeaders) -> bool:
    length = headers.get("content-length")  # streams have none
    return (
        headers.get("content-type", "").startswith("application/json")
        and "content-encoding" not in headers
        and length is not None
        and int(length) >= COMPRESSED_FROM_BYTES
    )


async def _compressed(start: Message, body: Message) -> Message:
    headers = MutableHeaders(raw=start["headers"])
    if body.get("more_body"):
        return body
    content = await asyncio.to_thread(_gzip, body["body"])
    headers["content-encoding"] = "gzip"
    headers["content-length"] = str(len(content))
    headers.add_vary_header("Accept-Encoding")
    return {**body, "body": content}


def _gzip(content: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP_FORMAT)
    return packer.compress(content) + packer.flush()
