"""Finds the process of a model and slot, or starts it from the current version of its backend."""

import asyncio
from dataclasses import dataclass, field

import structlog

from corral.artifacts import InstalledVersion
from corral.bus.messages import InstallRequest
from corral.core.errors import Unavailable
from corral.core.processes.process import Failed, ProcessSpec, ProcessStarting, ProcessStopped, ProcessView, Ready
from corral.core.replicas.llama_cpp import WeightFacts
from corral.system import Disk
from corral.worker.backends.backends import Backends, StoppedBackends, process_generation_of
from corral.worker.backends.progress import ProgressFeed
from corral.worker.processes.engine_meter import EngineMeter
from corral.worker.processes.localai_grpc import free_model
from corral.worker.processes.supervisor import RunningProcess, Supervisor
from corral.worker.replicas.launch import (
    StartSettings,
    plan_process,
    prepare_directory,
    prepare_places,
    process_key,
    version_id,
)
from corral.worker.replicas.weight_facts import read_weight_facts

log = structlog.get_logger()

MOST_KNOWN_WEIGHTS = 1000


@dataclass(frozen=True, slots=True)
class LocalReplicas:
    backends: Backends
    supervisor: Supervisor
    settings: StartSettings
    disk: Disk
    meter: EngineMeter
    weights: dict[str, WeightFacts | None] = field(default_factory=dict)
    """By path: what was read for the latest start."""

    def find(self, request: InstallRequest) -> RunningProcess | None:
        """The fast path: a running process with the requested version and options. Uses memory and the kernel only, no
        disk and no network."""
        version = self.backends.current(request.backend)
        if version is None or request.force:
            return None
        running = self.supervisor.running(process_key(request.model_id, version.name, request.replica_index))
        if running is None or running.spec.backend != version.name:
            return None
        pin = request.pinned_digest
        if running.spec.version_digest != (pin or version_id(version)):
            return None
        start = request.corral.start if request.corral is not None else None
        if start is not None and pin in ("", version_id(version)):
            planned = self._plan(version, request)
            before = running.spec
            if (planned.command, planned.reads, planned.labels) != (before.command, before.reads, before.labels):
                return None
        return running if self.supervisor.reads_current_files(running.spec.key) else None

    async def ensure(self, request: InstallRequest, *, feed: ProgressFeed | None = None) -> RunningProcess:
        """Installs the backend if missing, stops a process that does not match, starts one, and waits until ready."""
        await self.backends.accept(request)
        await self._read_weights(request)
        if (running := self.find(request)) is not None:
            await self.supervisor.confirm(running.spec.key, process_generation_of(request))
            await self.backends.note_applied(request)
            return running
        version = await self.backends.install(request, StoppedBackends(), listener=feed.show if feed else None)
        if feed is not None:
            feed.show_starting()
        async with self.backends.held(version.name):
            # Looked up again: another command may have changed it meanwhile.
            current = self.backends.current(version.name)
            if current is None:
                raise Unavailable(f"{version.name} was removed before it could be started; try again")
            vulkan = await asyncio.to_thread(prepare_directory, current, self.disk)
            spec = self._plan(current, request, vulkan)
            await asyncio.to_thread(prepare_places, spec, self.settings, self.disk)
            await self._clear(spec, reason="a restart was requested" if request.force else "it is outdated")
            runner = await self.supervisor.begin(spec)
        running = await self.supervisor.until_ready(runner)
        await self.meter.look_at(running)  # so that the first report of the process says what it takes
        return running

    async def _read_weights(self, request: InstallRequest) -> None:
        """The plan of a process depends on them."""
        path = request.corral.start.model if request.corral is not None and request.corral.start is not None else ""
        if not path:
            return
        try:
            facts = await asyncio.to_thread(read_weight_facts, path, self.disk)
        except OSError as error:  # the engine itself reports what is wrong with its weights
            log.warning("weights.not_read", path=path, error=str(error))
            facts = None
        if len(self.weights) >= MOST_KNOWN_WEIGHTS:
            self.weights.clear()
        self.weights[path] = facts

    async def _clear(self, spec: ProcessSpec, *, reason: str) -> None:
        """Stops the process of this key if it differs from the planned one."""
        view = self.supervisor.get(spec.key)
        if view is None or isinstance(view.state, Failed | ProcessStopped):
            return
        outdated = self.supervisor.is_outdated(spec.key) or not self.supervisor.reads_current_files(spec.key)
        if view.spec != spec or outdated:
            await self.supervisor.stop(spec.key, reason=reason, before=free_model)

    def _plan(self, version: InstalledVersion, request: InstallRequest, vulkan: tuple[str, ...] = ()) -> ProcessSpec:
        start = request.corral.start if request.corral is not None else None
        return plan_process(
            version,
            self.settings,
            model=request.model_id,
            replica=request.replica_index,
            start=start,
            vulkan=vulkan,
            generation=process_generation_of(request),
            weights=self.weights.get(start.model) if start is not None else None,
        )

    def live(self) -> list[ProcessView]:
        """Processes that are starting or ready. Ready ones are checked with the kernel."""
        return [view for view in self.supervisor.list() if self._is_live(view) and not view.is_smoke_test]

    def _is_live(self, view: ProcessView) -> bool:
        match view.state:
            case ProcessStarting():
                return True
            case Ready():
                return self.supervisor.running(view.key) is not None
            case _:
                return False
