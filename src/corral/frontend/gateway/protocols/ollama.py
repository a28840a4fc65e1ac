"""Ollama's API as a client protocol: chat, generate, embeddings, and what lists models.

Its paths are below `/api/`, beside the admin API; `dispatch.py` tells them apart. `/api/pull` and `/api/delete`
change the cluster, so the admin API has them (`frontend/api/ollama/`)."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from corral import __version__
from corral.frontend.gateway.client_protocol import ClientProtocol
from corral.frontend.gateway.endpoints import ServedModel
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.limit_answers import Allowance, openai_lines
from corral.frontend.gateway.model_list import find_usable, unknown_path, usable_models, wrong_method
from corral.frontend.gateway.peek import Peek, peek_json, rename_model
from corral.frontend.gateway.protocols.ollama_answers import EmbedAnswer, OllamaAnswer, format_time
from corral.frontend.gateway.protocols.ollama_requests import (
    NamedModel,
    OllamaChatRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    model_name,
    read_chat,
    read_generate,
)
from corral.frontend.gateway.protocols.requests import read_request
from corral.frontend.gateway.protocols.translation import AnswerTranslator, CallFacts, Translation
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.route_table import RouteTable
from corral.system import Clock

API_VERSION = "0.12.6"
"""The version of Ollama whose API this is. Clients compare it with what they need."""
_CHAT, _EMBEDDINGS = b"/v1/chat/completions", b"/v1/embeddings"
TAGS, PS, SHOW, VERSION = b"/api/tags", b"/api/ps", b"/api/show", b"/api/version"
_DETAILS = {
    "parent_model": "", "format": "", "family": "", "families": None, "parameter_size": "", "quantization_level": "",
}  # fmt: skip


_CAPABILITIES = ("completion", "tools")
_NEVER = "9999-12-31T23:59:59Z"
"""No time is known at which a model is unloaded: that depends on its configuration and on other requests."""


class ChatTranslation:
    path = _CHAT

    def begin(self, body: bytes, facts: CallFacts) -> tuple[bytes, AnswerTranslator]:
        request, fields = read_chat(body)
        answer = OllamaAnswer(request.model, facts, is_chat=True, only_loads=request.is_empty)
        return msgspec.json.encode(fields), answer


class GenerateTranslation:
    path = _CHAT

    def begin(self, body: bytes, facts: CallFacts) -> tuple[bytes, AnswerTranslator]:
        request, fields = read_generate(body)
        answer = OllamaAnswer(request.model, facts, is_chat=False, only_loads=request.is_empty)
        return msgspec.json.encode(fields), answer


class EmbedTranslation:
    path = _EMBEDDINGS

    def __init__(self, *, is_single: bool) -> None:
        self._is_single = is_single

    def begin(self, body: bytes, facts: CallFacts) -> tuple[bytes, AnswerTranslator]:
        request = read_request(OllamaEmbedRequest, body)
        fields = {
            "model": model_name(request.model),
            "input": (request.prompt if self._is_single else request.input) or "",
            "dimensions": request.dimensions,
        }
        sent = {name: value for name, value in fields.items() if value is not None}
        return msgspec.json.encode(sent), EmbedAnswer(request.model, facts, is_single=self._is_single)


_TRANSLATIONS: dict[bytes, Translation] = {
    b"/api/chat": ChatTranslation(),
    b"/api/generate": GenerateTranslation(),
    b"/api/embed": EmbedTranslation(is_single=False),
    b"/api/embeddings": EmbedTranslation(is_single=True),
}
_STREAMED = frozenset({b"/api/chat", b"/api/generate"})
CLIENT_PATHS = frozenset({*_TRANSLATIONS, TAGS, PS, SHOW, VERSION})
CLIENT_PATH_MAX_BYTES = max(map(len, CLIENT_PATHS))


class _StreamedPeek(Peek, kw_only=True):
    options: Any = None
    keep_alive: Any = None


class _UnloadPeek(Peek, kw_only=True):
    """`ollama stop`. How long a model stays loaded is up to its configuration, and to the other clients."""

    asked: str
    is_chat: bool

    def answer_locally(self, now_ms: int) -> bytes:
        said = {"message": {"role": "assistant", "content": ""}} if self.is_chat else {"response": ""}
        head = {"model": self.asked, "created_at": format_time(now_ms)}
        return msgspec.json.encode({**head, **said, "done": True, "done_reason": "unload"})


def _peek_streamed(body: bytes, *, is_chat: bool) -> Peek:
    peek = read_request(_StreamedPeek, body)
    stated = peek.options.get("num_predict") if isinstance(peek.options, dict) else None
    found = Peek(model_name(peek.model), stream=peek.stream is not False, max_tokens=stated)
    if peek.keep_alive is not None:
        request = read_request(OllamaChatRequest if is_chat else OllamaGenerateRequest, body)
        if request.is_unload:
            return _UnloadPeek(found.model, stream=False, asked=request.model, is_chat=is_chat)
    return found


def _peek_whole(body: bytes) -> Peek:
    return Peek(model_name(peek_json(body).model), stream=False)


class Ollama:
    relays_unchanged = True
    has_own_errors = True

    def is_call(self, method: bytes, path: bytes) -> bool:
        return method == b"POST" and path in _TRANSLATIONS

    def call_reader(self, head: RequestHead) -> Callable[[bytes], Peek]:
        return partial(_peek_streamed, is_chat=head.path == b"/api/chat") if head.path in _STREAMED else _peek_whole

    def translation(self, path: bytes) -> Translation | None:
        return _TRANSLATIONS.get(path)

    def with_model(self, head: RequestHead, body: bytes, model: str) -> bytes:
        return rename_model(body, model)

    def answer_locally(self, head: RequestHead, table: RouteTable, key: ClientKey, body: bytes) -> bytes:
        path = head.path
        if path not in CLIENT_PATHS:
            raise unknown_path(path)
        right = "POST" if path in _TRANSLATIONS or path == SHOW else "GET"
        if head.method != right.encode() and (right, head.method) != ("GET", b"HEAD"):
            raise wrong_method(head.method, right=right)
        if path == VERSION:
            return msgspec.json.encode({"version": API_VERSION, "corral": __version__})
        if path == SHOW:
            return _show(table, key, body)
        usable = usable_models(table, key)
        if path == PS:
            loaded = [(name, served) for name, served in usable if served.endpoints]
            models = [
                {**_model(name, served), "expires_at": _NEVER, "size_vram": 0, "context_length": _context(served)}
                for name, served in loaded
            ]
        else:
            models = [_model(name, served) for name, served in usable]
        return msgspec.json.encode({"models": models})

    def make_reply(
        self, client: ClientConnection, head: ReplyHead, more: bytes, *, http11: bool, keep_alive: bool
    ) -> Reply:
        return Reply(client, head, more, http11=http11, keep_alive=keep_alive)

    def limit_lines(self, allowance: Allowance, clock: Clock) -> bytes:
        return openai_lines(allowance)

    def error_body(self, error: ErrorResponse) -> bytes:
        return msgspec.json.encode({"error": str(error), "code": error.code, **error.more})

    def error_event(self, error: ErrorResponse, *, path: bytes, number: int) -> bytes:
        return self.error_body(error) + b"\n"


def _model(name: str, served: ServedModel) -> dict[str, object]:
    route = served.route
    digest = hashlib.sha256(f"{route.model} {route.revision}".encode()).hexdigest()
    times = {"modified_at": format_time(route.created_at_ms)}
    return {"name": name, "model": name, **times, "size": 0, "digest": digest, "details": _DETAILS}


def _context(served: ServedModel) -> int:
    """As far as the configuration says; 0 otherwise."""
    return max(0, served.route.context_size or 0)


def _model_info(served: ServedModel) -> dict[str, object]:
    """Ollama's clients look for the context by a name that begins with the architecture."""
    context = _context(served)
    info: dict[str, object] = {"general.architecture": "corral", "general.basename": served.name}
    return {**info, "corral.context_length": context} if context else info


def _show(table: RouteTable, key: ClientKey, body: bytes) -> bytes:
    request = read_request(NamedModel, body)
    name = model_name(request.model or request.name)
    served = find_usable(table, key, name)
    return msgspec.json.encode(
        {
            "modelfile": "",
            "parameters": "",
            "template": "",
            "details": _DETAILS,
            "model_info": _model_info(served),
            "capabilities": served.route.capabilities or _CAPABILITIES,
            "modified_at": format_time(served.route.created_at_ms),
        }
    )


OLLAMA: ClientProtocol = Ollama()
