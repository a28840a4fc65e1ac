"""Drivers for replicas that do not speak OpenAI's API.

Replicas with the protocol `openai` need no driver: the gateway relays their bytes. A driver for another protocol reads
an OpenAI request and writes an OpenAI answer. Before that the gateway checks key, model and limits. It holds a lease on
the replica while `handle` runs, and cancels `handle` when the client disconnects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from corral.core.replicas.routing import ModelRoute, RouteReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRequest:
    path: str
    """For example `/v1/chat/completions`."""
    model: str
    """The model's own name, even if the client used an alias."""
    route: ModelRoute
    stream: bool
    content_type: str
    body: bytes = field(repr=False)
    """The complete body, as the client sent it."""


class ResponseWriter(Protocol):
    """Writes the answer: `start` once, then `write` any number of times, until `handle` returns.

    Nothing reaches the client before `start`. If a driver raises before it, the request goes to another replica, if
    there is one. After it, the stream ends with an explicit error."""

    def start(self, status: int, headers: Mapping[str, str]) -> None: ...

    async def write(self, data: bytes) -> None:
        """Waits while the client does not read."""
        ...

    def count_tokens(self, *, prompt: int, completion: int) -> None:
        """Reports the tokens for metrics and usage."""
        ...


class Driver(Protocol):
    async def handle(self, request: DriverRequest, replica: RouteReplica, send: ResponseWriter) -> None:
        """Raises InvalidInput for the client's mistakes: status 400, not retried. Raises Unavailable or OutcomeUnknown
        before `send.start` to have the request sent to another replica."""
        ...

    async def close(self) -> None: ...
