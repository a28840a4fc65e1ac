"""Routes: the replicas that may get requests for each model, with all that picking one of them needs."""

from dataclasses import dataclass, field
from typing import NewType

from corral.core.replicas.attached import AttachedServer
from corral.core.replicas.public_routes import PublicRoute

ReplicaId = NewType("ReplicaId", str)

NAME_MOST = 300
"""Longer names are not compared for suggestions: that would be slow."""
OPENAI = "openai"
LOCALAI_GRPC = "localai-grpc"
ASSISTANT_PREFILL = "assistant-prefill"
CONTINUE_FINAL_MESSAGE = "continue-final-message"
CONTINUATIONS = (ASSISTANT_PREFILL, CONTINUE_FINAL_MESSAGE)


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
    endpoints: frozenset[str] = frozenset()
    """Paths of client APIs besides OpenAI's chat completions that the process speaks itself."""
    continuation: str = ""
    """How it continues an answer that another replica began: `assistant-prefill` or `continue-final-message`; empty if
    it cannot."""
    token: str = field(repr=False)
    """Requests must carry it. Another process on the same port has another token."""
    generation: int
    capacity: int | None
    """How many requests may be open at it; None is unknown."""
    revision: str
    backend_digest: str = ""
    """The version of the backend that it runs; empty is unknown."""
    weight: int = 1
    """Its share of the requests, relative to the other replicas of its model."""
    attached: AttachedServer | None = None
    """For a server that Corral does not start. Its node is then its address."""


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
    retry_after_s: int | None = None
    """What clients are told when all replicas are busy. None: as the gateway thinks."""
    context_size: int | None = None
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    version: int
    routes: tuple[ModelRoute, ...]
    public: tuple[PublicRoute, ...] = ()
