"""The middleware of every request: authentication, the size of the body, and security headers of the answer."""

import asyncio
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from corral.core.errors import CorralError, Forbidden, InvalidInput, RateLimited, TooLarge, Unavailable
from corral.core.sizes import format_bytes
from corral.frontend.auth.denial_log import DenialLog
from corral.frontend.auth.rules import Access, Authorizer, Principal, access_for
from corral.frontend.http.client_paths import OLLAMA_ADMIN, absent_path, near_client_path
from corral.frontend.http.cors import cors_headers, preflight_headers
from corral.frontend.http.errors import corral_error_response, error_response
from corral.frontend.http.proxies import TrustedProxies
from corral.system.http_clients import mark_authenticated

log = structlog.get_logger()

BODY_WITHIN_S = 30.0
# Limits of routes that check credentials themselves. All other bodies are read only for authenticated clients.
OPEN_BODY_BYTES = {Access.PUBLIC: 16 << 10, Access.NODE: 256 << 10}
BODIES_BYTES = 64 << 20
"""The limit of all bodies that are being received."""
DISCARD_MAX_BYTES = 32 << 20
DISCARD_WITHIN_S = 5.0
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)


class AuthMiddleware:
    def __init__(
        self,
        app: ASGIApp,
        *,
        authorizer: Authorizer,
        body_limit_bytes: int,
        denials: DenialLog,
        proxies: TrustedProxies,
        cors_origin: str,
    ) -> None:
        self._app = app
        self._authorizer = authorizer
        self._body_limit_bytes = body_limit_bytes
        self._denials = denials
        self._proxies = proxies
        self._cors = cors_headers(cors_origin)
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            self._find_client(scope)
        if scope["type"] == "websocket":
            await self._open_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, path, address = scope["method"], scope["path"], client_address(scope)

        access = access_for(method, path)
        near, text = near_client_path(path), absent_path(path)
        # Pages may call the clients' paths that the app has, and read what is wrong with those that it has not.
        cors = self._cors if path in OLLAMA_ADMIN or near or text else ()

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SAFE_HEADERS, *cors]
                if access is Access.NODE and message["status"] < 300:
                    mark_authenticated(scope)
            await send(message)

        if method == "OPTIONS" and cors:
            asked = preflight_headers(headers.get("access-control-request-headers", "").encode("latin-1"))
            lines = {name.decode(): value.decode("latin-1") for name, value in asked}
            await Response(headers=lines)(scope, receive, send_safely)
            return
        if near or text:  # before the key is checked: a user's key may not use these paths either way
            text = text or f"the API has no path {path}; did you mean {near}?"
            await error_response(404, text, "unknown_url", path=path)(scope, receive, send_safely)
            return
        try:
            cookies = _read_cookies(headers.get("cookie", ""))
            principal = await self._authorizer.admit(method, path, headers, cookies, address)
            if principal is not None:
                mark_authenticated(scope)
            limit_bytes = min(self._body_limit_bytes, OPEN_BODY_BYTES.get(access, self._body_limit_bytes))
            if access is Access.NODE:
                receive = self._read_lazily(headers, receive, limit_bytes)
            elif method not in ("GET", "HEAD"):
                receive = await self._read_body(headers, receive, limit_bytes)
        except CorralError as error:
            if isinstance(error, Forbidden):
                denied = await self._authorizer.identify(headers, cookies, address)
                await self._denials.record(denied.actor if denied else "nobody", f"{method} {path}", error)
            elif isinstance(error, RateLimited):
                await self._denials.record(f"address {address}", f"{method} {path}", error)
            await corral_error_response(path, error)(scope, receive, send_safely)
            return
        scope.setdefault("state", {})["principal"] = principal
        changes = path.startswith("/api/") and method not in ("GET", "HEAD")
        sender = _logged(send_safely, principal, f"{method} {path}") if principal and changes else send_safely
        await self._app(scope, receive, sender)

    def _find_client(self, scope: Scope) -> None:
        """Replaces the address of a trusted proxy by that of its client."""
        peer = client_address(scope)
        forwarded: dict[str, str] = {}
        for name, value in scope["headers"]:
            if name in (b"x-forwarded-for", b"forwarded"):
                before = forwarded.get(name.decode())
                forwarded[name.decode()] = f"{before},{value.decode('latin-1')}" if before else value.decode("latin-1")
        client = self._proxies.client_of(peer, forwarded)
        if client != peer:
            scope["client"] = (client, 0)

    async def _open_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticates the client before the socket is open; messages are not checked again."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            cookies = _read_cookies(headers.get("cookie", ""))
            principal = await self._authorizer.admit("GET", scope["path"], headers, cookies, client_address(scope))
            if principal is not None and principal.by_cookie and not _is_own_page(headers):
                raise Forbidden("browser sessions are only for Corral's own pages")
        except CorralError as error:
            await WebSocket(scope, receive, send).send_denial_response(corral_error_response(scope["path"], error))
            return
        scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)

    def _read_lazily(self, headers: dict[str, str], receive: Receive, limit_bytes: int) -> Receive:
        """For routes that check the client's credential before they read the body."""
        read: Receive | None = None

        async def read_first() -> Message:
            nonlocal read
            if read is None:
                read = await self._read_body(headers, receive, limit_bytes)
            return await read()

        return read_first

    async def _read_body(self, headers: dict[str, str], receive: Receive, limit_bytes: int) -> Receive:
        """Reads the whole body, limited in size and time, so that no route waits for a slow or endless one."""
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit_bytes:
            await _discard(receive)
            raise _too_large(limit_bytes)
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                body = await self._gather(receive, limit_bytes)
        except TimeoutError:
            raise InvalidInput(f"the body was not received within {BODY_WITHIN_S:.0f} s") from None
        delivered = False

        async def replay() -> Message:
            nonlocal delivered
            if not delivered:
                delivered = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        return replay

    async def _gather(self, receive: Receive, limit_bytes: int) -> bytes:
        body = bytearray()
        held_bytes = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise InvalidInput("the connection ended before the whole body was received")
                body += message.get("body", b"")
                if len(body) > limit_bytes:
                    await _discard(receive)
                    raise _too_large(limit_bytes)
                if not message.get("more_body", False):
                    return bytes(body)
                self._held_bytes += len(body) - held_bytes
                held_bytes = len(body)
                if self._held_bytes > BODIES_BYTES:
                    raise Unavailable("too many request bodies are being received; retry later")
        finally:
            self._held_bytes -= held_bytes


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"the body is larger than the limit of {format_bytes(limit_bytes)}")


def _logged(send: Send, principal: Principal, request: str) -> Send:
    """Logs one line for every change, whichever route makes it."""

    async def send_and_log(message: Message) -> None:
        if message["type"] == "http.response.start":
            log.info("api.change", actor=principal.actor, request=request, status=message["status"])
        await send(message)

    return send_and_log


def _is_own_page(headers: Mapping[str, str]) -> bool:
    """A browser sends our cookie also for pages on other ports of this host, which it takes for the same site."""
    return urlsplit(headers.get("origin", "")).netloc == headers.get("host", "")


def client_address(scope: Scope) -> str:
    """The address of the client: of the connection, or the one that a trusted proxy reports."""
    client = scope.get("client")
    return client[0] if client else ""


async def _discard(receive: Receive) -> None:
    """Reads the rest of the body, within limits: a client that is cut off while it sends never reads the answer."""
    dropped = 0
    try:
        async with asyncio.timeout(DISCARD_WITHIN_S):
            while dropped < DISCARD_MAX_BYTES:
                message = await receive()
                dropped += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _read_cookies(header: str) -> dict[str, str]:
    if not header:
        return {}
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}
