"""Errors for a model whose backend does not have the requested endpoint. The backend's own message names neither the
model nor what to do."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from corral.frontend.gateway.client_protocol import ClientProtocol
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead, status_line
from corral.system.json import decode_json

# Messages that say no more than the status. A 404 with another message (a stored response was not found) is relayed.
_SAYS_NOTHING = re.compile(
    r"(\d{3})?[\s:]*((the |requested |this )*(file|page|path|url|route|resource|endpoint))?( was)?\s*"
    r"(not found|method not allowed|not implemented)?[\s.!]*",
    re.IGNORECASE,
)
_MESSAGE_MAX_CHARS = 300


def unsupported(model: str, path: str, backend_message: str = "") -> ErrorResponse:
    message = (
        f"{model!r} does not support {path}: its backend has no such endpoint. Use a model that supports it; the column"
        " USE of `corral models list` shows what each model is for."
    )
    if backend_message:
        message += f" The backend's message: {backend_message}"
    return ErrorResponse(404, message, code="endpoint_not_supported", param="model")


def explain_unsupported(model: str, path: str, status: int, body: bytes) -> ErrorResponse | None:
    """None when the answer is about something other than the path. Status 501 is always about the path."""
    message = _message(body).strip()[:_MESSAGE_MAX_CHARS]
    is_plain = _SAYS_NOTHING.fullmatch(message) is not None
    if status != 501 and not is_plain:
        return None
    return unsupported(model, path, "" if is_plain else message)


def _message(body: bytes) -> str:
    try:
        found: Any = decode_json(body, Any)
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace")
        return "" if "<html" in text.lower() else text.strip()
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return found if isinstance(found, str) else ""


class UnsupportedReply(Reply):
    """Holds any answer until it is complete, because only then is it known what it says."""

    def __init__(
        self,
        client: ClientConnection,
        head: ReplyHead,
        more: bytes,
        *,
        http11: bool,
        keep_alive: bool,
        protocol: ClientProtocol,
        explain: Callable[[bytes], ErrorResponse | None],
    ) -> None:
        super().__init__(client, head, more, http11=http11, keep_alive=keep_alive)
        self._more, self._protocol, self._explain = more, protocol, explain
        self._held = []

    def _hold(self, held: list[bytes], data: bytes, *, last: bool) -> None:
        if last:
            data = b"".join((*held, data))
            held.clear()
            error = self._explain(data)
            if error is not None:
                data = self._protocol.error_body(error)
                self._head = b"".join((status_line(error.status), *error.headers(), self._more))
        super()._hold(held, data, last=last)
