"""What the steps of one load share: its job, the services it uses, its progress, and what was found out so far."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from corral.controller.loads.node_rpc import NodeRpc
from corral.controller.loads.ports import LoadServices
from corral.controller.loads.tracker import LoadTracker
from corral.core.errors import OutcomeUnknown, Unavailable
from corral.core.replicas.placement import Need
from corral.store.serving.load_claims import LoadClaimStore
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.models import StoredModel
from corral.store.stores import Stores

log = structlog.get_logger()

WRITE_AGAIN_S = 1.0
T = TypeVar("T")


@dataclass(slots=True, kw_only=True, eq=False)
class LoadContext:
    """One load job: the services its steps use, its progress, and what the steps have found out."""

    job: LoadJob
    services: LoadServices
    tracker: LoadTracker
    rpc: NodeRpc
    need: Need | None = None
    """What it was placed with; None when an earlier owner of the job placed it."""
    model: StoredModel | None = None
    """The revision that is being loaded, once it is placed."""
    is_canary: bool = False
    """It loads a pending revision, which must answer a request before it replaces the current one."""
    replica_id: str | None = None
    started: bool = False
    """The node was asked to start the process, so a failure must stop it."""
    digest: str = ""
    """The build that the node was asked to start."""

    @property
    def stores(self) -> Stores:
        return self.services.stores

    @property
    def claims(self) -> LoadClaimStore:
        return self.services.stores.load_claims

    async def persist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Retries while the store is unavailable: the result of a step must not be lost. The fence rejects a write of
        a job that another frontend has taken over."""
        while True:
            try:
                return await write()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("load.write_failed", model=self.job.model, error=str(error))
                await asyncio.sleep(WRITE_AGAIN_S)
