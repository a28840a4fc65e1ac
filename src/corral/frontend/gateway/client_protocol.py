"""The seam between a client's protocol and the proxying.

`ProxiedRequest` knows keys, models, replicas, queues and failures. How a client phrases its request, and the form in
which it reads answers, chunks and errors, is known only to the request's `ClientProtocol`. Replicas and drivers always
speak OpenAI's API. A protocol that differs from it translates in `call_reader`, `with_model` and its own `Reply`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.peek import Peek
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead

if TYPE_CHECKING:
    from corral.frontend.gateway.keys import ClientKey
    from corral.frontend.gateway.request_head import RequestHead
    from corral.frontend.gateway.route_table import RouteTable


class ClientProtocol(Protocol):
    relays_unchanged: bool
    """A replica's answer reaches the client byte for byte. This allows the fast path, which builds no `Reply`."""

    def is_call(self, method: bytes, path: bytes) -> bool:
        """Whether a replica answers this request."""
        ...

    def call_reader(self, head: "RequestHead") -> Callable[[bytes], Peek]:
        """A function that reads what routing needs from a body. The function raises InvalidInput."""
        ...

    def with_model(self, head: "RequestHead", body: bytes, model: str) -> bytes:
        """The body of the same request for a model's own name in place of an alias."""
        ...

    def answer_locally(self, head: "RequestHead", table: "RouteTable", key: "ClientKey") -> bytes:
        """The JSON answer to a request that no replica answers. Raises ErrorResponse."""
        ...

    def make_reply(
        self, client: ClientConnection, head: ReplyHead, more: bytes, *, http11: bool, keep_alive: bool
    ) -> Reply:
        """Writes a replica's answer and its chunks to the client."""
        ...

    def error_body(self, error: ErrorResponse) -> bytes: ...

    def error_event(self, error: ErrorResponse) -> bytes:
        """The error as the last event of a stream."""
        ...
