"""Anthropic's API as a client protocol: `/v1/messages`, `/v1/messages/count_tokens`, `/v1/models`."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from corral.frontend.gateway.client_protocol import ClientProtocol
from corral.frontend.gateway.endpoints import ServedModel
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.limit_answers import Allowance
from corral.frontend.gateway.model_list import MODELS, find_model, unknown_path, usable_models, wrong_method
from corral.frontend.gateway.peek import Peek, rename_model
from corral.frontend.gateway.protocols.anthropic_answers import MessageAnswer, TokenCount
from corral.frontend.gateway.protocols.anthropic_requests import chat_request, read_messages_request
from corral.frontend.gateway.protocols.requests import read_request
from corral.frontend.gateway.protocols.translation import AnswerTranslator, CallFacts, Translation
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.route_table import RouteTable
from corral.frontend.gateway.token_usage import ReportedUsage
from corral.system import Clock

MESSAGES = b"/v1/messages"
COUNT_TOKENS = b"/v1/messages/count_tokens"
VERSION_HEADER = b"anthropic-version"
_CHAT = b"/v1/chat/completions"
_INPUT_TOKENS = re.compile(rb'"(?:cache_read_)?input_tokens"\s*:\s*(\d{1,12})')
_LAST_USAGE = b'"message_delta"'
_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class MessagesPeek(Peek, kw_only=True):
    """Checks what every engine needs: some answer with status 500 without it."""

    messages: list[msgspec.Raw]


def _peek(body: bytes) -> Peek:
    return read_request(MessagesPeek, body)


class MessagesTranslation:
    path = _CHAT

    def begin(self, body: bytes, facts: CallFacts) -> tuple[bytes, AnswerTranslator]:
        request = read_messages_request(body)
        return msgspec.json.encode(chat_request(request)), MessageAnswer(request.model, facts.id)


class CountTranslation:
    """Counts by asking for one token: no endpoint of OpenAI's API counts tokens, but every answer reports them."""

    path = _CHAT

    def begin(self, body: bytes, facts: CallFacts) -> tuple[bytes, AnswerTranslator]:
        request = msgspec.structs.replace(read_messages_request(body), max_tokens=1, stream=False)
        return msgspec.json.encode(chat_request(request)), TokenCount()


_TRANSLATIONS: dict[bytes, Translation] = {MESSAGES: MessagesTranslation(), COUNT_TOKENS: CountTranslation()}


class MessagesReply(Reply):
    """A replica's own answer. Its first event, not its last, tells the tokens of the prompt; the last but one those of
    the answer."""

    _prompt_tokens: int | None = None

    def put(self, data: bytes, *, last: bool) -> None:
        if self._prompt_tokens is None and self.is_events and data:
            self._prompt_tokens = sum(map(int, _INPUT_TOKENS.findall(data)))
        super().put(data, last=last)

    def usage(self, *, complete: bool) -> ReportedUsage:
        found = super().usage(complete=complete)
        if self.relay is not None and not any(_LAST_USAGE in part for part in self.relay.kept()):
            return self._prompt_tokens or 0, self.events  # the first event counts no more than itself
        if isinstance(found, tuple) and not found[0]:
            return self._prompt_tokens or 0, found[1]
        return found


class Anthropic:
    relays_unchanged = True
    has_own_errors = True

    def is_call(self, method: bytes, path: bytes) -> bool:
        return method == b"POST" and path in _TRANSLATIONS

    def call_reader(self, head: RequestHead) -> Callable[[bytes], Peek]:
        return _peek

    def translation(self, path: bytes) -> Translation | None:
        return _TRANSLATIONS.get(path)

    def with_model(self, head: RequestHead, body: bytes, model: str) -> bytes:
        return rename_model(body, model)

    def answer_locally(self, head: RequestHead, table: RouteTable, key: ClientKey, body: bytes) -> bytes:
        path = head.path
        if path in _TRANSLATIONS:
            raise wrong_method(head.method, right="POST")
        if path != MODELS and not path.startswith(MODELS + b"/"):
            raise unknown_path(path)
        if head.method not in (b"GET", b"HEAD"):
            raise wrong_method(head.method, right="GET")
        if path in (MODELS, MODELS + b"/"):
            data = [_model(name, served) for name, served in usable_models(table, key)]
            ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
            return msgspec.json.encode({"data": data, "has_more": False, **ends})
        return msgspec.json.encode(_model(*find_model(table, key, path)))

    def make_reply(
        self, client: ClientConnection, head: ReplyHead, more: bytes, *, http11: bool, keep_alive: bool
    ) -> Reply:
        return MessagesReply(client, head, more, http11=http11, keep_alive=keep_alive)

    def limit_lines(self, allowance: Allowance, clock: Clock) -> bytes:
        lines = b""
        for what, (limit, left, reset_s) in ((b"requests", allowance[:3]), (b"tokens", allowance[3:])):
            if limit:
                reset = _format_time(clock.now_ms() + reset_s * 1000).encode()
                lines += (
                    b"anthropic-ratelimit-%b-limit: %d\r\nanthropic-ratelimit-%b-remaining: %d\r\n"
                    b"anthropic-ratelimit-%b-reset: %b\r\n" % (what, limit, what, left, what, reset)
                )
        return lines

    def error_body(self, error: ErrorResponse) -> bytes:
        kind = _ERROR_TYPES.get(error.status) or ("invalid_request_error" if error.status < 500 else "api_error")
        body = {"type": kind, "message": str(error), "code": error.code}
        return msgspec.json.encode({"type": "error", "error": body, **error.more})

    def error_event(self, error: ErrorResponse, *, path: bytes, number: int) -> bytes:
        return b"event: error\ndata: " + self.error_body(error) + b"\n\n"


def _model(name: str, served: ServedModel) -> dict[str, object]:
    created = _format_time(served.route.created_at_ms)
    return {"type": "model", "id": name, "display_name": name, "created_at": created}


def _format_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


ANTHROPIC: ClientProtocol = Anthropic()
