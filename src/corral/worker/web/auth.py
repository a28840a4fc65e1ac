"""Authorization of the worker's HTTP server. All paths except the listed public ones need a token."""

import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.artifacts.sources.site import BLOB_PATH
from corral.core.backends.blob_tokens import opens_blob
from corral.system import Clock
from corral.system.http_clients import mark_authenticated

PUBLIC = frozenset(("/healthz", "/readyz"))


@dataclass(slots=True)
class Keys:
    """Change with each join: LocalAI frontends use the registration token, Corral frontends the worker's own token."""

    files: frozenset[str] = field(default_factory=frozenset, repr=False)
    blobs: frozenset[str] = field(default_factory=frozenset, repr=False)
    """Each opens every blob, and makes the tokens that open one."""


class RequireToken:
    def __init__(self, app: ASGIApp, keys: Callable[[], Keys], clock: Clock) -> None:
        self._app, self._keys, self._clock = app, keys, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._may(scope):
            if scope.get("path") not in PUBLIC:
                mark_authenticated(scope)
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "unauthorized"})
        else:
            await PlainTextResponse("unauthorized", status_code=401)(scope, receive, send)

    def _may(self, scope: Scope) -> bool:
        if scope["type"] == "http" and scope["path"] in PUBLIC:
            return True
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            return False
        keys = self._keys()
        if not scope["path"].startswith(BLOB_PATH):
            return _is_one_of(token.strip(), keys.files)
        return _is_one_of(token.strip(), keys.files | keys.blobs) or self._opens(keys, token.strip(), scope["path"])

    def _opens(self, keys: Keys, token: str, path: str) -> bool:
        digest, now_s = path.removeprefix(BLOB_PATH), self._clock.now_ms() / 1000
        return any(opens_blob(secret, token, digest, now_s=now_s) for secret in keys.blobs)


def _is_one_of(token: str, keys: Iterable[str]) -> bool:
    """Compares with all keys in constant time."""
    found = False
    for key in keys:
        found |= hmac.compare_digest(token.encode(), key.encode())
    return found
