"""The reconcile runtime of a frontend under test."""

from corral.controller.loop import ReconcileRuntime
from corral.store.stores import Stores
from corral.system import Clock, Ids, SystemClock, SystemIds
from corral.telemetry.metrics import MetricRegistry


def make_runtime(
    stores: Stores,
    holder: str = "fe",
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    registry: MetricRegistry | None = None,
) -> ReconcileRuntime:
    return ReconcileRuntime(
        holder=holder,
        leases=stores.leases,
        registry=registry or MetricRegistry(),
        clock=clock or SystemClock(),
        draw=(ids or SystemIds()).draw,
    )
