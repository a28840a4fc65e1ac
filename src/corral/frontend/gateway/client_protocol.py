"""The seam between a client's protocol and the proxying.

`ProxiedRequest` knows keys, models, replicas, queues and failures. How a client phrases its request, and the form in
which it reads answers, chunks and errors, is known only to the request's `ClientProtocol`. Replicas and drivers speak
OpenAI's API; some speak others too. `protocols/translation.py` translates for those that do not."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.peek import Peek
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead

if TYPE_CHECKING:
    from corral.frontend.gateway.keys import ClientKey
    from corral.frontend.gateway.limit_answers import Allowance
    from corral.frontend.gateway.protocols.translation import Translation
    from corral.frontend.gateway.request_head import RequestHead
    from corral.frontend.gateway.route_table import RouteTable
    from corral.system import Clock


class ClientProtocol(Protocol):
    relays_unchanged: bool
    """A replica's answer reaches the client byte for byte, unless it is translated. This allows the fast path, which
    builds no `Reply`."""
    has_own_errors: bool
    """Replicas' errors reach the client in this protocol's form. Otherwise they are relayed too."""

    def is_call(self, method: bytes, path: bytes) -> bool:
        """Whether a replica answers this request."""
        ...

    def call_reader(self, head: "RequestHead") -> Callable[[bytes], Peek]:
        """A function that reads what routing needs from a body. The function raises InvalidInput."""
        ...

    def translation(self, path: bytes) -> "Translation | None":
        """For replicas that do not speak this protocol themselves. None: all of them do, or none can."""
        ...

    def with_model(self, head: "RequestHead", body: bytes, model: str) -> bytes:
        """The body of the same request for a model's own name in place of an alias."""
        ...

    def answer_locally(self, head: "RequestHead", table: "RouteTable", key: "ClientKey", body: bytes) -> bytes:
        """The JSON answer to a request that no replica answers. Raises ErrorResponse."""
        ...

    def make_reply(
        self, client: ClientConnection, head: ReplyHead, more: bytes, *, http11: bool, keep_alive: bool
    ) -> Reply:
        """Writes a replica's answer and its chunks to the client."""
        ...

    def limit_lines(self, allowance: "Allowance", clock: "Clock") -> bytes:
        """Header lines that tell what the limits of the client's key still allow."""
        ...

    def error_body(self, error: ErrorResponse) -> bytes: ...

    def error_event(self, error: ErrorResponse, *, path: bytes, number: int) -> bytes:
        """The error as the last event of a stream, after `number` others."""
        ...
