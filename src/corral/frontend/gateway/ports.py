"""What the lane needs of others, each as small as it can be."""

from collections.abc import Mapping
from typing import Protocol

from corral.core.replicas.routing import ReplicaId, RouteSnapshot


class RouteSource(Protocol):
    """The truth about routes; the store's."""

    async def read_version(self) -> int:
        """Grows with every change of models, replicas or nodes that routing could notice."""
        ...

    async def read_routes(self) -> RouteSnapshot: ...


class UsageSink(Protocol):
    def count(
        self, *, key_id: str | None, model: str, node_id: str, requests: int, tokens_in: int, tokens_out: int
    ) -> None:
        """Requests that got an answer. Must not wait: called on the warm path."""
        ...


class LastUsed(Protocol):
    async def touch(self, ages_ms: Mapping[ReplicaId, int]) -> None:
        """How long ago each replica began or ended its latest request."""
        ...
