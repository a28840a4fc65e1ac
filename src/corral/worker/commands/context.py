"""What every handler is handed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from corral.bus.client import Bus
from corral.worker.backends.backends import Backends
from corral.worker.files.object_storage import SharedStorage
from corral.worker.membership.reports import NodeReporting, Reporter
from corral.worker.processes.supervisor import Supervisor
from corral.worker.replicas.replicas import LocalReplicas
from corral.worker.replicas.weights import ModelFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    bus: Bus
    who: NodeReporting
    epoch: int | None
    """As the frontend counts our processes; None from a LocalAI frontend, which does not."""
    backends: Backends
    replicas: LocalReplicas
    supervisor: Supervisor
    reporter: Reporter
    models: ModelFiles
    storage: SharedStorage | None
    """Where the fleet shares files over S3; None where it does not."""
    tell_room: Callable[[], Awaitable[None]]
    """Tells frontends what is free now."""
