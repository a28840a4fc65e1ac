"""OpenAI's API as a client protocol. Replicas speak it too, so requests and answers are relayed unchanged."""

from collections.abc import Callable
from functools import partial

import msgspec

from corral.frontend.gateway.client_protocol import ClientProtocol
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.limit_answers import Allowance, openai_lines
from corral.frontend.gateway.model_list import MODELS, list_models, unknown_path, wrong_method
from corral.frontend.gateway.peek import Peek, peek_json, peek_multipart, rename_model, rename_model_in_form
from corral.frontend.gateway.protocols.responses import RESPONSES, ResponsesTranslation
from corral.frontend.gateway.protocols.responses_answers import failed_event
from corral.frontend.gateway.protocols.translation import Translation
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.route_table import RouteTable
from corral.frontend.http import client_paths
from corral.system import Clock

PREFIX = b"/v1/"
_RESPONSES = ResponsesTranslation()
PROXIED = frozenset(path.encode() for path in client_paths.PROXIED)
"""The paths that a replica answers."""
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
}


class OpenAi:
    relays_unchanged = True
    has_own_errors = False

    def is_call(self, method: bytes, path: bytes) -> bool:
        return method == b"POST" and path in PROXIED

    def call_reader(self, head: RequestHead) -> Callable[[bytes], Peek]:
        return partial(peek_multipart, content_type=head.content_type) if head.is_form else peek_json

    def translation(self, path: bytes) -> Translation | None:
        return _RESPONSES if path == RESPONSES else None

    def with_model(self, head: RequestHead, body: bytes, model: str) -> bytes:
        return rename_model_in_form(body, head.content_type, model) if head.is_form else rename_model(body, model)

    def answer_locally(self, head: RequestHead, table: RouteTable, key: ClientKey, body: bytes) -> bytes:
        if head.path in PROXIED:
            raise wrong_method(head.method, right="POST")
        if head.path != MODELS and not head.path.startswith(MODELS + b"/"):
            raise unknown_path(head.path)
        return list_models(table, key, head.method, head.path)

    def make_reply(
        self, client: ClientConnection, head: ReplyHead, more: bytes, *, http11: bool, keep_alive: bool
    ) -> Reply:
        return Reply(client, head, more, http11=http11, keep_alive=keep_alive)

    def limit_lines(self, allowance: Allowance, clock: Clock) -> bytes:
        return openai_lines(allowance)

    def error_body(self, error: ErrorResponse) -> bytes:
        kind = error.kind or _ERROR_TYPES.get(error.status, "server_error")
        body = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
        return msgspec.json.encode({"error": body, **error.more})

    def error_event(self, error: ErrorResponse, *, path: bytes, number: int) -> bytes:
        if path == RESPONSES:
            return failed_event(error, number)
        return b"data: " + self.error_body(error) + b"\n\n"


OPENAI: ClientProtocol = OpenAi()
