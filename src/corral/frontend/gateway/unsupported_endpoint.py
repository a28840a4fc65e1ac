"""A model whose backend does not have what it was asked for: told in our words, since the backend's name neither the
model nor a way on."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from corral.frontend.gateway.answers import STATUS_LINES, Refusal
from corral.frontend.gateway.reply import Client, Reply, ReplyHead
from corral.system.json import decode_json

STATUSES = frozenset({404, 405, 501})
"""With these servers say that there is nothing at a path."""
# What says no more than its status. A 404 that tells of something (a response that is not kept) is passed on as it is.
_SAYS_NOTHING = re.compile(
    r"(\d{3})?[\s:]*((the |requested |this )*(file|page|path|url|route|resource|endpoint))?( was)?\s*"
    r"(not found|method not allowed|not implemented)?[\s.!]*",
    re.IGNORECASE,
)
_SAID_MOST_CHARS = 300


def lacking(model: str, path: str, said: str = "") -> Refusal:
    message = (
        f"{model!r} cannot be asked at {path}: its backend does not have that. Ask a model whose backend does; the"
        " column USE of `corral models list` tells what models are for."
    )
    if said:
        message += f" The backend says: {said}"
    return Refusal(404, message, code="endpoint_not_supported", param="model")


def explain_lack(model: str, path: str, status: int, body: bytes) -> Refusal | None:
    """Where an answer with one of the statuses is about the path. 501 always is."""
    said = _message(body).strip()[:_SAID_MOST_CHARS]
    is_plain = _SAYS_NOTHING.fullmatch(said) is not None
    if status != 501 and not is_plain:
        return None
    return lacking(model, path, "" if is_plain else said)


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


class LackingReply(Reply):
    """Held until it is whole, whatever it is; then it is known what it says."""

    def __init__(
        self,
        client: Client,
        head: ReplyHead,
        more: bytes,
        *,
        http11: bool,
        keep_alive: bool,
        explain: Callable[[bytes], Refusal | None],
    ) -> None:
        super().__init__(client, head, more, http11=http11, keep_alive=keep_alive)
        self._more, self._explain = more, explain
        self._held = []

    def _hold(self, held: list[bytes], data: bytes, *, last: bool) -> None:
        if last:
            data = b"".join((*held, data))
            held.clear()
            refusal = self._explain(data)
            if refusal is not None:
                data = refusal.body()
                self._head = b"".join((STATUS_LINES[refusal.status], *refusal.headers(), self._more))
        super()._hold(held, data, last=last)
