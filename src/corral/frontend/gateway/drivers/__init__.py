"""How a replica is spoken to.

`openai` needs no driver: the lane passes its bytes through. Every other protocol has one here, which reads an OpenAI
request and writes an OpenAI answer. The lane has checked key, model and limits, holds the replica's lease while
`handle` runs, and cancels it when the client goes away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from corral.core.replicas.routing import ModelRoute, RouteReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRequest:
    path: str
    """For example `/v1/chat/completions`."""
    model: str
    """The configured name, whatever alias the caller used."""
    route: ModelRoute
    stream: bool
    content_type: str
    body: bytes = field(repr=False)
    """As the caller sent it, whole."""


class LaneSend(Protocol):
    """The answer, in order: `start` once, `write` any number of times, then return from `handle`.

    Until `start` nothing has reached the client, so a driver that raises before gets another replica where there is
    one; after it, the stream ends with an explicit error."""

    def start(self, status: int, headers: Mapping[str, str]) -> None: ...

    async def write(self, data: bytes) -> None:
        """Waits while the client does not read."""
        ...

    def count_tokens(self, *, prompt: int, completion: int) -> None:
        """For metrics and usage."""
        ...


class Driver(Protocol):
    async def handle(self, request: LaneRequest, replica: RouteReplica, send: LaneSend) -> None:
        """Raises InvalidInput (400, the caller's mistake: not retried), or Unavailable / OutcomeUnknown before
        `send.start` to be tried on another replica."""
        ...

    async def close(self) -> None: ...
