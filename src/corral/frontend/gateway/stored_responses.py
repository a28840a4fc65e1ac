"""`/v1/responses/ID`: a response that an engine has stored, to be read, cancelled or deleted.

Such a request names no model. The replicas of the models that the key may use are asked in turn, as far as their
engines have `/v1/responses` themselves: the id is known only to the replica that gave it."""

import re

from corral.frontend.gateway.endpoints import Endpoint, ServedModel
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.model_list import reachable_models
from corral.frontend.gateway.peek import Peek
from corral.frontend.gateway.phases import ROUTING, AtReplica, Sent
from corral.frontend.gateway.protocols.responses import RESPONSES
from corral.frontend.gateway.proxied_request import ProxiedRequest
from corral.frontend.gateway.token_usage import ReportedUsage
from corral.frontend.gateway.upstream.calls import Headers

REPLICAS_MAX = 32
_NO_TOKENS = Peek(max_output_tokens=1)
"""Such a request counts as a request, and its tokens were counted when the response was given."""
_METHODS = {b"": (b"GET", b"DELETE"), b"/cancel": (b"POST",), b"/input_items": (b"GET",)}
_PATH = re.compile(re.escape(RESPONSES) + rb"/[A-Za-z0-9_-]{1,128}(/cancel|/input_items)?")


def names_stored_response(method: bytes, path: bytes) -> bool:
    found = _PATH.fullmatch(path) if path.startswith(RESPONSES) else None
    return found is not None and method in _METHODS[found[1] or b""]


class StoredResponseRequest(ProxiedRequest):
    _left: list[Endpoint]
    """The replicas that were not asked yet."""

    def _route(self, key: ClientKey, *, is_table_fresh: bool = False) -> None:
        self._key = key
        self._client.is_known = True
        if key.limits is not None:
            try:
                self._admit(key, key.limits, _NO_TOKENS)
            except ErrorResponse as response:
                self._reject(response)
                return
        models = reachable_models(self._gateway.table, key)
        self._left = [endpoint for served in models for endpoint in served.endpoints if self._can_ask(endpoint)]
        del self._left[REPLICAS_MAX:]
        self._ask_next()

    def _can_ask(self, endpoint: Endpoint) -> bool:
        attached = endpoint.attached
        return RESPONSES in endpoint.speaks and (attached is None or not attached.has_had(self.head.hops))

    def _ask_next(self) -> None:
        if not self._left:
            self._reject(_not_found(self.head.path))
            return
        endpoint = self._left.pop(0)
        self._served = endpoint.served
        self._send(endpoint, None)

    def _place(self, served: ServedModel, *, has_turn: bool = False) -> None:
        """A replica failed."""
        self._ask_next()

    def _handles_error(self, sent: Sent, status: int, headers: Headers, data: bytes, last: bool) -> bool:
        if status != 404:
            return super()._handles_error(sent, status, headers, data, last)
        if sent.call is not None:
            sent.call.cancel()
        self._phase = ROUTING
        self._gateway.inflight.end(sent.endpoint)
        self._ask_next()
        return True

    def _complete(self, phase: AtReplica, reported: ReportedUsage, ended_s: float) -> None:
        """Its tokens were counted when the response was given."""
        super()._complete(phase, (0, 0), ended_s)


def _not_found(path: bytes) -> ErrorResponse:
    name = path[len(RESPONSES) + 1 :].partition(b"/")[0].decode()
    message = (
        f"no replica has a stored response {name!r}. Responses are stored only by engines that do so themselves, until"
        " their process ends; send the whole conversation as `input` instead."
    )
    return ErrorResponse(404, message, code="response_not_found")
