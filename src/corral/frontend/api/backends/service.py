"""What the routes need of whoever decides and carries out."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from corral.core.backends.operations import NodeProgress
from corral.core.backends.planning import NodeBackends
from corral.core.backends.requests import RequestedDelete, RequestedInstall, RequestedRollback, RequestedUpgrade
from corral.core.backends.upgrades import Offers, Unchecked, Upgrade
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import Target
from corral.store.backends.create_operation import Admitted


class FleetService(Protocol):
    async def install(self, wanted: RequestedInstall, *, actor: str, key: str | None = None) -> Admitted: ...

    async def upgrade(self, wanted: RequestedUpgrade, *, actor: str, key: str | None = None) -> Admitted: ...

    async def delete(self, wanted: RequestedDelete, *, actor: str, key: str | None = None) -> Admitted: ...

    async def rollback(self, wanted: RequestedRollback, *, actor: str, key: str | None = None) -> Admitted: ...

    async def read_targeted(self, target: Target) -> Sequence[NodeBackends]: ...


class Progress(Protocol):
    def of(self, operation_id: str) -> Mapping[NodeId, NodeProgress]: ...


class UpgradeChecks(Protocol):
    @property
    def lookups(self) -> int:
        """Counts up with every answer of a gallery."""
        ...

    async def read_offers(self, states: Sequence[NodeBackends]) -> Offers:
        """By backend and node, for all that is on these."""
        ...

    async def read(self) -> Mapping[str, Upgrade]:
        """Against what nodes have at this moment."""
        ...

    async def read_unchecked(self) -> Mapping[str, Sequence[Unchecked]]:
        """By backend: where nobody can tell whether there is something newer, and why."""
        ...

    async def ask(self, *, wait_s: float = 0.0) -> bool:
        """Every frontend looks into galleries and registries anew. True when this one has, within the time."""
        ...
