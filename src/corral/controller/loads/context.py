"""What every load is given, and how it may end."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from corral.controller.loads.needs import Needs
from corral.controller.loads.ports import Builds, GrpcLoader, Link, PeerBook, Stager, Traffic
from corral.core.errors import OutcomeUnknown, Unavailable
from corral.core.replicas.replica import Replica
from corral.store.stores import Stores
from corral.system import Clock, Ids

log = structlog.get_logger()

WRITE_AGAIN_S = 1.0
T = TypeVar("T")


class LoadJobFailed(Unavailable):
    """The machine it was on, or its backend, said why it cannot, or nothing at all."""

    code = "model_load_failed"


class BackendDeleted(Unavailable):
    """Somebody deleted the backend from the node the load was on; it goes on elsewhere, or says so."""

    code = "backend_deleted"


class NodeLost(Unavailable):
    """The node the load was on is gone; it goes on elsewhere."""

    code = "node_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    stores: Stores
    """What a load that runs is given waits while the store is away (`store/engine/patient.py`)."""
    bus: Link
    builds: Builds
    peers: PeerBook
    needs: Needs
    traffic: Traffic
    grpc: GrpcLoader | None
    stager: Stager | None
    shared_models: bool
    """Every machine sees the same models directory: nothing is brought anywhere."""
    stop_replicas: Callable[[list[Replica]], Awaitable[None]]
    """Ends processes and waits until they are gone."""
    hint: Callable[[], Awaitable[None]]
    clock: Clock
    ids: Ids


async def written(model: str, work: Callable[[], Awaitable[T]]) -> T:
    """What was done must be written down: while the store is away it is tried again, behind the fence."""
    while True:
        try:
            return await work()
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("load.not_written", model=model, error=str(error))
            await asyncio.sleep(WRITE_AGAIN_S)
