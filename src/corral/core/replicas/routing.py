"""Routes: the replicas that may get requests for each model, with all that picking one of them needs."""

from dataclasses import dataclass, field
from typing import NewType

ReplicaId = NewType("ReplicaId", str)

NAME_MOST = 300
"""Longer names are not compared for suggestions: that would be slow."""
OPENAI = "openai"
LOCALAI_GRPC = "localai-grpc"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePolicy:
    """How a replica is picked. Affinity is a hint: it is ignored for a replica that is too busy."""

    prefix_affinity: bool = False
    """Requests with the same prefix go to the same replica, whose cache may hold it."""
    balance_abs_threshold: int = 2
    """A hint is followed while its replica has at most this many more requests than the least busy one ..."""
    balance_rel_threshold: float = 1.5
    """... or at most this many times as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteReplica:
    """A replica that may get requests now."""

    id: ReplicaId
    node_id: str
    node_name: str
    slot: int
    address: str
    """`host:port`."""
    protocol: str
    """`openai` or `localai-grpc`."""
    token: str = field(repr=False)
    """Requests must carry it. Another process on the same port has another token."""
    generation: int
    capacity: int | None
    """How many requests may be open at it; None is unknown."""
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    """One configured model. Without replicas it is loaded on demand."""

    model: str
    aliases: tuple[str, ...] = ()
    revision: str = ""
    created_at_ms: int = 0
    """When this revision was created."""
    replicas: tuple[RouteReplica, ...] = ()
    policy: RoutePolicy = RoutePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    version: int
    routes: tuple[ModelRoute, ...]
