"""Opens what outlives a membership: artifacts, processes, file areas. A worker that rejoins keeps them, and its
backends keep running."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from corral.core.processes.ports import PortSpan
from corral.core.processes.process import ProcessView
from corral.core.processes.restarts import RestartPolicy
from corral.settings.roles import WorkerSettings
from corral.settings.values import WRITABLE
from corral.system import Clock, Disk, Ids
from corral.system.loops import keep_running
from corral.system.s3 import S3Bucket
from corral.system.secret_files import ensure_secret
from corral.worker.backends.applied_generations import AppliedGenerations
from corral.worker.backends.backends import Backends
from corral.worker.backends.cleanup import run_cleanup
from corral.worker.backends.download_settings import artifact_settings, storage_keys
from corral.worker.backends.jobs import Jobs
from corral.worker.backends.requests import RequestReader
from corral.worker.backends.system_backends import read_system_backends
from corral.worker.files.areas import Area
from corral.worker.files.object_storage import TEMPORARY, SharedStorage
from corral.worker.files.temporary_files import EPHEMERAL
from corral.worker.hardware.nvml import Nvml
from corral.worker.membership.conditions import Conditions
from corral.worker.membership.process_leases import ProcessLeaseEnforcer
from corral.worker.membership.reports import Reporter
from corral.worker.ports import Fetch, WorkerPorts
from corral.worker.processes.confinement import shared_group
from corral.worker.processes.engine_meter import EngineMeter
from corral.worker.processes.isolation import Isolation
from corral.worker.processes.local import LocalSettings
from corral.worker.processes.localai_grpc import probe_of
from corral.worker.processes.ports import Ports, read_port_pool
from corral.worker.processes.supervisor import Supervisor
from corral.worker.replicas.launch import ModelPaths
from corral.worker.replicas.smoke_test import end_smoke_tests
from corral.worker.replicas.weights import ModelFiles
from corral.worker.web.files import FileAreas

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRuntime:
    artifacts: Fetch
    supervisor: Supervisor
    leases: ProcessLeaseEnforcer
    conditions: Conditions
    backends: Backends
    meter: EngineMeter
    reporter: Reporter
    models: ModelFiles
    files: FileAreas
    cache: Area
    model_paths: ModelPaths
    storage: SharedStorage | None
    http_token: str = field(repr=False)
    blob_token: str = field(repr=False)


@asynccontextmanager
async def open_worker_runtime(
    settings: WorkerSettings, ports: WorkerPorts, *, capability: str, nvml: Nvml | None, isolation: Isolation
) -> AsyncIterator[WorkerRuntime]:
    """Processes keep running after the block; `Supervisor.stop_all` stops them."""
    try:
        async with AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
            yield await _open(settings, ports, opened, tasks, capability=capability, nvml=nvml, isolation=isolation)
            raise _Leaving
    except* _Leaving:
        log.debug("worker.runtime_closed")


class _Leaving(Exception):
    """Ends the tasks of runners and jobs. Processes and partial downloads remain for the next worker."""


async def _open(
    settings: WorkerSettings,
    ports: WorkerPorts,
    opened: AsyncExitStack,
    tasks: asyncio.TaskGroup,
    *,
    capability: str,
    nvml: Nvml | None,
    isolation: Isolation,
) -> WorkerRuntime:
    data_dir = settings.data_dir
    artifacts = await opened.enter_async_context(ports.open_fetch(artifact_settings(settings, ports.environment)))
    changed, cleanup_due = asyncio.Event(), asyncio.Event()
    supervisor = _supervisor(settings, ports, tasks, changed, nvml, isolation)
    backends = Backends(
        artifacts,
        supervisor,
        AppliedGenerations(data_dir / "applied_generations.json", ports.disk),
        Jobs(tasks),
        RequestReader(artifacts, capability),
        changed=changed.set,
        request_cleanup=cleanup_due.set,
        read_system=lambda: read_system_backends(settings.system_backends_dir, ports.disk),
    )
    await backends.refresh()
    adopted = await supervisor.adopt()
    if adopted:
        log.info("worker.processes_adopted", processes=[view.key for view in adopted])
        await end_smoke_tests(supervisor, adopted)
    tasks.create_task(
        keep_running("cleanup", lambda: run_cleanup(artifacts, backends, supervisor, cleanup_due)), name="cleanup"
    )
    meter = EngineMeter(supervisor, ports.call_engine, changed=changed.set)
    tasks.create_task(keep_running("engine meter", meter.run), name="engine meter")
    areas = _areas(opened, data_dir, ports, settings.files_quota_bytes)
    cache = ports.open_area(data_dir / "cache")
    opened.callback(cache.close)
    group = shared_group(isolation, settings.backend_user)
    if group is not None:
        _share(areas, cache, ports, group)
    return WorkerRuntime(
        artifacts=artifacts,
        supervisor=supervisor,
        leases=ProcessLeaseEnforcer(data_dir / "leases.json", supervisor, disk=ports.disk, clock=ports.clock),
        conditions=Conditions(
            data_dir,
            disk=ports.disk,
            clock=ports.clock,
            headroom_bytes=settings.disk_headroom_bytes,
            ports_left=supervisor.find_exhausted_ports,
        ),
        backends=backends,
        meter=meter,
        reporter=Reporter(backends, supervisor, meter, changed),
        models=ModelFiles(areas.models, artifacts, Jobs(tasks), cleanup_due.set),
        files=areas,
        cache=cache,
        model_paths=_model_paths(settings, areas, cache, ports.disk),
        storage=_storage(settings, areas, cache, clock=ports.clock, ids=ports.ids),
        http_token=ensure_secret(ports.disk, data_dir / "http.token", ports.ids.token),
        blob_token=ensure_secret(ports.disk, data_dir / "blob.token", ports.ids.token),
    )


def _model_paths(settings: WorkerSettings, areas: FileAreas, cache: Area, disk: Disk) -> ModelPaths:
    return ModelPaths(
        models=str(areas.models.root),
        own_name=(str(areas.models.root), str(cache.root / "models")),
        exchange=(
            *(str(area.root) for area in (areas.staging, areas.data)),
            *(str(cache.root / name) for name in _IN_CACHE),
        ),
        private=tuple(str(path.resolve()) for path in _private(settings, disk)),
    )


_IN_CACHE = (EPHEMERAL, TEMPORARY, "data")
"""Directories of the cache in which shared storage keeps files that belong to no model."""


def _share(areas: FileAreas, cache: Area, ports: WorkerPorts, group: int) -> None:
    areas.data.share_with(group)
    areas.staging.share_with(group)
    for name in _IN_CACHE:
        part = ports.open_area(cache.root / name)
        part.share_with(group)
        part.close()


def _private(settings: WorkerSettings, disk: Disk) -> tuple[Path, ...]:
    """Corral's own directories. Inside a `corral up` directory these include its keys and its store."""
    above = settings.data_dir.parent
    with suppress(PermissionError):  # not inside a `corral up` directory, which would be readable
        if above / "keys" in disk.list(above):
            return (above,)
    return (settings.data_dir,)


def _supervisor(
    settings: WorkerSettings,
    ports: WorkerPorts,
    tasks: asyncio.TaskGroup,
    changed: asyncio.Event,
    nvml: Nvml | None,
    isolation: Isolation,
) -> Supervisor:
    first, _, last = settings.backend_ports.partition("-")
    state = settings.data_dir / "run"
    if shared_group(isolation, settings.backend_user) is not None and not isolation.mounts:
        ports.disk.let_through(settings.data_dir)  # backends traverse it to their version
    paths = settings.backend_paths
    local = LocalSettings(
        state=state,
        environment=ports.environment,
        pass_on=settings.backend_environment,
        isolation=isolation,
        private=_private(settings, ports.disk),
        weights=(settings.data_dir / "models", settings.data_dir / "cache" / "models"),
        readable=tuple(path for path in paths if not path.endswith(WRITABLE)),
        writable=tuple(path.removesuffix(WRITABLE) for path in paths if path.endswith(WRITABLE)),
    )
    processes = ports.open_processes(local, nvml)
    port_pool = Ports(read_port_pool(PortSpan(int(first), int(last))), ports.clock)

    def on_change(_view: ProcessView) -> None:
        changed.set()

    policy = RestartPolicy(budget=settings.backend_restarts, base_s=settings.backend_restart_delay_s)
    return Supervisor(
        tasks,
        processes,
        port_pool,
        clock=ports.clock,
        ids=ports.ids,
        probe_of=probe_of,
        changed=on_change,
        policy=policy,
    )


def _areas(opened: AsyncExitStack, data_dir: Path, ports: WorkerPorts, quota_bytes: int | None) -> FileAreas:
    # Not `staging`, in which the installer builds versions: frontends must not access it.
    models, data, inbox = (ports.open_area(data_dir / name) for name in ("models", "data", "inbox"))
    areas = FileAreas(models, data, inbox, ports.ids.uuid, quota_bytes)
    for area in (areas.models, areas.data, areas.staging):
        opened.callback(area.close)
    return areas


def _storage(
    settings: WorkerSettings, areas: FileAreas, cache: Area, *, clock: Clock, ids: Ids
) -> SharedStorage | None:
    found = storage_keys(settings)
    if found is None:
        return None
    bucket = S3Bucket(found, settings.storage_bucket, clock=clock, ids=ids)
    return SharedStorage(bucket, areas.models, areas.data, cache, ids.uuid)
