"""How requests reach an attached server: its paths, its headers, and its name for the model."""

from corral import __version__
from corral.core.replicas.attached import ANTHROPIC_VERSION, HOPS_MAX, MESSAGES_PATHS, AttachedServer, UpstreamProtocol
from corral.frontend.gateway.peek import rename_model, rename_model_in_form

PREFIX = "/v1"
CHAT = b"/v1/chat/completions"
MESSAGES = b"/v1/messages"
VERSION_LINE = f"anthropic-version: {ANTHROPIC_VERSION}\r\n".encode()
NAMED_ANSWERS = frozenset({CHAT, b"/v1/completions", b"/v1/embeddings"})
"""Paths whose answers name the model in one place."""
_NATIVE = frozenset(path.encode() for path in MESSAGES_PATHS)


class AttachedTarget:
    __slots__ = ("_base", "_id", "head", "is_partial", "model", "probe", "protocol")

    def __init__(self, id: str, server: AttachedServer, key: str) -> None:
        self._id = id.encode()
        self._base = server.url.path.encode()
        self.protocol = server.protocol
        self.model = server.model
        """The model's name there; empty where it is the same."""
        self.is_partial = server.protocol is UpstreamProtocol.ANTHROPIC
        lines = [f"Host: {server.url.authority}", f"User-Agent: corral/{__version__}"]
        if key:
            lines.append(f"x-api-key: {key}" if self.is_partial else f"Authorization: Bearer {key}")
        self.head = "".join(f"{line}\r\n" for line in lines).encode()
        self.probe = b"GET %b/models HTTP/1.1\r\n%b%bConnection: close\r\n\r\n" % (
            self._base,
            self.head,
            VERSION_LINE if self.is_partial else b"",
        )

    def opening(self, path: bytes, hops: tuple[bytes, ...], *, method: bytes = b"POST") -> bytes:
        """`path`: Corral's own, below `/v1`. `hops`: the endpoints that led the request here. Should it come back, it
        will be refused."""
        line = b"x-corral-hops: %b\r\n" % b",".join((*hops, self._id))
        return b"%b %b%b HTTP/1.1\r\n%b" % (method, self._base, path.removeprefix(PREFIX.encode()), line)

    def has_had(self, hops: tuple[bytes, ...]) -> bool:
        """Whether a request has been here already, or nearly anywhere."""
        return self._id in hops or len(hops) >= HOPS_MAX

    def has(self, path: bytes, as_chat: bytes) -> bool:
        """`as_chat`: the path of the same request after it is translated for replicas."""
        return not self.is_partial or path in _NATIVE or as_chat == CHAT

    def rename(self, body: bytes, *, form_type: bytes) -> bytes:
        """The request with the server's name for the model. `form_type`: the content type of a form; empty for JSON."""
        if not self.model or not body:
            return body
        return rename_model_in_form(body, form_type, self.model) if form_type else rename_model(body, self.model)
