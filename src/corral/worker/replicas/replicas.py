"""The process of one model and slot: found, or started from the current version of its backend."""

import asyncio
from dataclasses import dataclass

from corral.artifacts import InstalledVersion
from corral.bus.messages import InstallRequest
from corral.core.errors import Unavailable
from corral.core.processes.process import Failed, ProcessSpec, ProcessStarting, ProcessStopped, ProcessView, Ready
from corral.system import Disk
from corral.worker.backends.backends import Backends, StoppedBackends, process_generation_of
from corral.worker.backends.progress import ProgressFeed
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


@dataclass(frozen=True, slots=True)
class LocalReplicas:
    backends: Backends
    supervisor: Supervisor
    settings: StartSettings
    disk: Disk

    def find(self, request: InstallRequest) -> RunningProcess | None:
        """The fast path: a process that lives, was started from the version asked for, and as asked for. No disk, no
        network; the kernel and our memory know."""
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
            wanted = self._plan(version, request)
            if (wanted.command, wanted.reads) != (running.spec.command, running.spec.reads):
                return None
        return running if self.supervisor.reads_current_files(running.spec.key) else None

    async def ensure(self, request: InstallRequest, *, feed: ProgressFeed | None = None) -> RunningProcess:
        """Installs what is missing, clears away what does not fit, starts, and answers when it is ready."""
        await self.backends.accept(request)
        if (running := self.find(request)) is not None:
            await self.supervisor.confirm(running.spec.key, process_generation_of(request))
            await self.backends.note_applied(request)
            return running
        version = await self.backends.install(request, StoppedBackends(), listener=feed.show if feed else None)
        if feed is not None:
            feed.show_starting()
        async with self.backends.held(version.name):
            # Looked up again: another order may have come between.
            current = self.backends.current(version.name)
            if current is None:
                raise Unavailable(f"{version.name} was removed before it could be started; ask again")
            vulkan = await asyncio.to_thread(prepare_directory, current, self.disk)
            spec = self._plan(current, request, vulkan)
            await asyncio.to_thread(prepare_places, spec, self.settings, self.disk)
            await self._clear(spec, reason="it is started anew" if request.force else "it does not fit any more")
            life = await self.supervisor.begin(spec)
        return await self.supervisor.until_ready(life)

    async def _clear(self, spec: ProcessSpec, *, reason: str) -> None:
        """Whatever has the key and is not what we want to run."""
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
        )

    def live(self) -> list[ProcessView]:
        """Started and not being stopped, and those that are ready are alive by the kernel's word."""
        return [view for view in self.supervisor.list() if self._is_live(view)]

    def _is_live(self, view: ProcessView) -> bool:
        match view.state:
            case ProcessStarting():
                return True
            case Ready():
                return self.supervisor.running(view.key) is not None
            case _:
                return False
