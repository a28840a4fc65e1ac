"""Where requests for a model may go. Everything a pick needs, and nothing it must ask for."""

from dataclasses import dataclass, field
from typing import NewType

ReplicaId = NewType("ReplicaId", str)

NAME_MOST = 300
"""Whatever is longer is near to no name, and comparing it would take long."""
OPENAI = "openai"
LOCALAI_GRPC = "localai-grpc"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePolicy:
    """How one of several replicas is picked. Affinity is a hint: a replica that is too busy loses it."""

    prefix_affinity: bool = False
    """Requests that begin alike go to the same replica, whose cache may hold their beginning."""
    balance_abs_threshold: int = 2
    """A hint is followed while its replica has at most this many more requests than the least busy one ..."""
    balance_rel_threshold: float = 1.5
    """... or at most this many times as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteReplica:
    """A replica that may get traffic now."""

    id: ReplicaId
    node_id: str
    node_name: str
    slot: int
    address: str
    """`host:port`."""
    protocol: str
    """`openai` or `localai-grpc`."""
    token: str = field(repr=False)
    """What the process asks of every caller. A process that took over the port has another one."""
    generation: int
    capacity: int | None
    """How many requests it works on at once; None is unknown."""
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    """One configured model. Without replicas it is known, but cold."""

    model: str
    aliases: tuple[str, ...] = ()
    revision: str = ""
    created_at_ms: int = 0
    """When this revision of it was made."""
    replicas: tuple[RouteReplica, ...] = ()
    policy: RoutePolicy = RoutePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    version: int
    routes: tuple[ModelRoute, ...]
