"""What loading uses of other components, and `LoadServices`, which carries them."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from corral.bus.messages import BlobPeer, FoundPath
from corral.core.backends.build import BuildResolution
from corral.core.backends.variants import Unresolved
from corral.core.models.config import ConfigFile, ModelConfig
from corral.core.models.load_plan import WeightsPlan
from corral.core.nodes.node import Node, NodeId
from corral.core.replicas.replica import Replica
from corral.core.replicas.staging import FileTransfer
from corral.store.stores import Stores
from corral.system import Clock, Ids


class NodeBus(Protocol):
    @property
    def connected(self) -> bool: ...

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...

    async def publish(self, subject: str, data: bytes) -> None: ...


class Builds(Protocol):
    async def recall(self, reference: str, nodes: Iterable[Node]) -> Mapping[NodeId, BuildResolution | Unresolved]:
        """By node: the build, why none fits, or why it is unknown. Raises NotFound for a name that no gallery has."""
        ...

    async def find_names(self, reference: str, nodes: Iterable[Node]) -> Mapping[NodeId, frozenset[str]]:
        """By node: the names of the build it would get, without a request to any registry."""
        ...

    def galleries_text(self, reference: str) -> str:
        """The galleries in which a worker that looks names up itself finds the reference."""
        ...


class PeerFinder(Protocol):
    async def find(self, digest: str | None, *, besides: str) -> list[BlobPeer]:
        """Nodes that already have that version, for an install on the node `besides`."""
        ...

    async def among(self, nodes: Collection[str], *, besides: str) -> list[BlobPeer]:
        """Those of the nodes that can serve blobs now."""
        ...


class Traffic(Protocol):
    def total(self, replica: Any) -> int: ...

    def queue_depth(self, model: str) -> int: ...

    def idle_s(self, replica: Any) -> float | None:
        """Seconds since its latest request ended; None if no request is known."""
        ...


class Stager(Protocol):
    async def stage(
        self, model: str, node: Node, names: Sequence[str], on_progress: Callable[[FileTransfer], None]
    ) -> Sequence[ConfigFile] | None:
        """Send those of the model's files that are on this machine to the node, or to shared storage. Returns the files
        that the node must still download; None when none of the files is here."""
        ...

    async def sha256_of(self, name: str) -> str | None:
        """Hexadecimal digest of the file on this machine; None when there is none, empty for a directory."""
        ...

    async def changed_since(self, names: Sequence[str], at_ms: int) -> Sequence[str]:
        """Those of the files on this machine that may have changed since that time."""
        ...


class LocalAiStaging(Protocol):
    async def stage(
        self, model: str, node: Node, plan: WeightsPlan, on_progress: Callable[[FileTransfer], None]
    ) -> Mapping[str, FoundPath]:
        """Send all files of the plan that are on this machine or can be downloaded to a LocalAI worker. Returns where
        the node has them, by name."""
        ...

    async def find(self, node: Node, names: Iterable[str]) -> Mapping[str, FoundPath]:
        """Which of the names are in the models directory of a LocalAI worker."""
        ...

    async def keep_only(self, files: Iterable[ConfigFile]) -> None:
        """Remove downloads on this machine that are not among the files."""
        ...


class GrpcLoader(Protocol):
    async def load(
        self,
        config: ModelConfig,
        replica: Replica,
        *,
        paths: Mapping[str, str],
        fitted: Mapping[str, int],
        within_s: float,
    ) -> None:
        """LocalAI's LoadModel call to a running process. `fitted`: slots, threads and the like, as the worker planned
        them for its machine; empty if it did not. Raises CorralError with the backend's message."""
        ...


class Proof(Protocol):
    async def prove(self, config: ModelConfig, replica: Replica) -> None:
        """Send one small request to a replica that gets no requests yet. Raises CorralError when it does not answer;
        returns for models that have no small request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadServices:
    """What every load uses."""

    stores: Stores
    """Those of a running load wait while the store is unavailable (`store/engine/retrying.py`)."""
    bus: NodeBus
    builds: Builds
    peers: PeerFinder
    traffic: Traffic
    grpc: GrpcLoader | None
    stager: Stager | None
    localai_stager: LocalAiStaging | None = None
    proof: Proof | None = None
    """For the first replica of an edited model; None: its start is enough."""
    shared_models: bool
    """All nodes share one models directory: no files are transferred."""
    stop_replicas: Callable[[list[Replica]], Awaitable[None]]
    """Stops their processes and returns when they have ended."""
    notify_changed: Callable[[], Awaitable[None]]
    """Notifies all frontends that routes changed."""
    lease_s: float
    """The first lease of a process that a load starts."""
    clock: Clock
    ids: Ids
