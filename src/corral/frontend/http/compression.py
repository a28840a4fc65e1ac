"""Long listings, compressed for those who ask: a thousand nodes are a megabyte of JSON, most of it the same words."""

import asyncio
import zlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

WORTH_IT_BYTES = 32 * 1024
_LEVEL = 1  # the higher ones take three times as long for a tenth less
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


class CompressedListings:
    """Only whole JSON answers to a GET. What streams goes through untouched, and at once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _takes_gzip(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        held: Message | None = None

        async def pass_on(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_long_json(MutableHeaders(raw=message["headers"])):
                held = message  # its length is known only with the body
                return
            start, held = held, None
            if start is not None:
                message = await _compressed(start, message)
                await send(start)
            await send(message)

        await self._app(scope, receive, pass_on)


def _takes_gzip(headers: Headers) -> bool:
    for item in headers.get("accept-encoding", "").split(","):
        coding, _, weight = item.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _is_long_json(headers: MutableHeaders) -> bool:
    length = headers.get("content-length")  # what streams has none
    return (
        headers.get("content-type", "").startswith("application/json")
        and "content-encoding" not in headers
        and length is not None
        and int(length) >= WORTH_IT_BYTES
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
