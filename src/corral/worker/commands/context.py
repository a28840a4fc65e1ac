"""The dependencies of all command handlers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from corral.bus.client import Bus
from corral.core.processes.process import ProcessKey
from corral.worker.backends.backends import Backends
from corral.worker.files.object_storage import SharedStorage
from corral.worker.membership.reports import NodeReporting, Reporter
from corral.worker.processes.supervisor import Supervisor
from corral.worker.replicas.replicas import LocalReplicas
from corral.worker.replicas.smoke_test import SmokeTests
from corral.worker.replicas.weights import ModelFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    bus: Bus
    who: NodeReporting
    epoch: int | None
    """The epoch of this worker process, assigned by the frontend; None with a LocalAI frontend."""
    backends: Backends
    replicas: LocalReplicas
    smoke_tests: SmokeTests
    supervisor: Supervisor
    reporter: Reporter
    models: ModelFiles
    storage: SharedStorage | None
    """The fleet's shared S3 storage; None if there is none."""
    begin_lease: Callable[[ProcessKey, float], Awaitable[None]]
    """Gives a process its first lease, in seconds."""
    report_capacity: Callable[[], Awaitable[None]]
    """Reports the free capacity to frontends at once."""
