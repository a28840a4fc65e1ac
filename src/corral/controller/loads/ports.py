"""What loading needs of others, each as small as it can be."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from corral.bus.messages import BlobPeer
from corral.core.backends.build import BuildResolution
from corral.core.backends.variants import Unresolved
from corral.core.models.config import ConfigFile, ModelConfig
from corral.core.nodes.node import Node, NodeId
from corral.core.replicas.replica import Replica
from corral.core.replicas.staging import Lot


class Link(Protocol):
    @property
    def connected(self) -> bool: ...

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...

    async def publish(self, subject: str, data: bytes) -> None: ...


class Builds(Protocol):
    async def recall(self, reference: str, nodes: Iterable[Node]) -> Mapping[NodeId, BuildResolution | Unresolved]:
        """By node: the build, why none fits, or why it is unknown. Raises NotFound for a name that no gallery has."""
        ...

    async def find_names(self, reference: str, nodes: Iterable[Node]) -> Mapping[NodeId, frozenset[str]]:
        """By node: what the build it would get goes by, without asking any registry."""
        ...


class PeerBook(Protocol):
    async def find(self, digest: str | None, *, besides: str) -> list[BlobPeer]:
        """Nodes that have that version already, for an install on the node `besides`."""
        ...

    async def among(self, nodes: Collection[str], *, besides: str) -> list[BlobPeer]:
        """Of these nodes those that can be asked for blobs now."""
        ...


class Traffic(Protocol):
    def total(self, replica: Any) -> int: ...

    def queue_depth(self, model: str) -> int: ...

    def idle_s(self, replica: Any) -> float | None:
        """Since its latest request ended; None if nobody knows of one."""
        ...


class Stager(Protocol):
    async def stage(
        self, model: str, node: Node, names: Sequence[str], on_progress: Callable[[Lot], None]
    ) -> Sequence[ConfigFile] | None:
        """Brings those of the model's files that lie here to the node, or to where it can get them: what is left for it
        to fetch. None when no such file is here."""
        ...

    async def sha256_of(self, name: str) -> str | None:
        """Of the file here, as hexadecimal digits; None when there is none, empty for a directory."""
        ...

    async def changed_since(self, names: Sequence[str], at_ms: int) -> Sequence[str]:
        """Those of the files here that may not be what they were at that time."""
        ...


class GrpcLoader(Protocol):
    async def load(self, config: ModelConfig, replica: Replica, *, paths: Mapping[str, str], within_s: float) -> None:
        """LocalAI's LoadModel at a process that runs. Raises CorralError with the backend's own words."""
        ...
