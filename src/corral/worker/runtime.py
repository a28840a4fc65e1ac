"""Opens everything that outlives a membership: artifacts, processes, file areas. A worker that has to join anew goes on
with the same ones, and so do the backends it runs."""

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
from corral.worker.backends.cleanup import tidy_always
from corral.worker.backends.download_settings import artifact_settings, storage_keys
from corral.worker.backends.jobs import Jobs
from corral.worker.backends.requests import RequestReader
from corral.worker.backends.system_backends import read_system_backends
from corral.worker.files.areas import Area
from corral.worker.files.object_storage import TEMPORARY, SharedStorage
from corral.worker.files.temporary_files import EPHEMERAL
from corral.worker.hardware.nvml import Nvml
from corral.worker.membership.conditions import Conditions
from corral.worker.membership.process_leases import ProcessLeaseKeeper
from corral.worker.membership.reports import Reporter
from corral.worker.ports import Fetch, WorkerPorts
from corral.worker.processes.confinement import shared_group
from corral.worker.processes.isolation import Isolation
from corral.worker.processes.local import LocalSettings
from corral.worker.processes.localai_grpc import probe_of
from corral.worker.processes.ports import Ports, read_port_pool
from corral.worker.processes.supervisor import Supervisor
from corral.worker.replicas.launch import ModelPaths
from corral.worker.replicas.weights import ModelFiles
from corral.worker.web.files import FileAreas

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRuntime:
    artifacts: Fetch
    supervisor: Supervisor
    leases: ProcessLeaseKeeper
    conditions: Conditions
    backends: Backends
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
    settings: WorkerSettings, world: WorkerPorts, *, capability: str, nvml: Nvml | None, isolation: Isolation
) -> AsyncIterator[WorkerRuntime]:
    """Leaving the block leaves the processes running; `Supervisor.stop_all` ends them."""
    try:
        async with AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
            yield await _open(settings, world, opened, tasks, capability=capability, nvml=nvml, isolation=isolation)
            raise _Leaving
    except* _Leaving:
        log.debug("worker.workshop_left")


class _Leaving(Exception):
    """Ends the tasks of lives and jobs, which are endless; processes and partial downloads wait for the next worker."""


async def _open(
    settings: WorkerSettings,
    world: WorkerPorts,
    opened: AsyncExitStack,
    tasks: asyncio.TaskGroup,
    *,
    capability: str,
    nvml: Nvml | None,
    isolation: Isolation,
) -> WorkerRuntime:
    data_dir = settings.data_dir
    artifacts = await opened.enter_async_context(world.open_fetch(artifact_settings(settings, world.environment)))
    news, untidy = asyncio.Event(), asyncio.Event()
    supervisor = _supervisor(settings, world, tasks, news, nvml, isolation)
    backends = Backends(
        artifacts,
        supervisor,
        AppliedGenerations(data_dir / "ledger.json", world.disk),
        Jobs(tasks),
        RequestReader(artifacts, capability),
        changed=news.set,
        tidy=untidy.set,
        read_system=lambda: read_system_backends(settings.system_backends_dir, world.disk),
    )
    await backends.refresh()
    adopted = await supervisor.adopt()
    if adopted:
        log.info("worker.processes_taken_over", processes=[view.key for view in adopted])
    tasks.create_task(
        keep_running("tidying", lambda: tidy_always(artifacts, backends, supervisor, untidy)), name="tidying"
    )
    areas = _areas(opened, data_dir, world, settings.files_quota_bytes)
    cache = world.open_area(data_dir / "cache")
    opened.callback(cache.close)
    group = shared_group(isolation, settings.backend_user)
    if group is not None:
        _share(areas, cache, world, group)
    return WorkerRuntime(
        artifacts=artifacts,
        supervisor=supervisor,
        leases=ProcessLeaseKeeper(data_dir / "leases.json", supervisor, disk=world.disk, clock=world.clock),
        conditions=Conditions(
            data_dir,
            disk=world.disk,
            clock=world.clock,
            headroom_bytes=settings.disk_headroom_bytes,
            ports_left=supervisor.find_exhausted_ports,
        ),
        backends=backends,
        reporter=Reporter(backends, supervisor, news),
        models=ModelFiles(areas.models, artifacts, Jobs(tasks), untidy.set),
        files=areas,
        cache=cache,
        model_paths=_model_paths(settings, areas, cache, world.disk),
        storage=_storage(settings, areas, cache, clock=world.clock, ids=world.ids),
        http_token=ensure_secret(world.disk, data_dir / "http.token", world.ids.token),
        blob_token=ensure_secret(world.disk, data_dir / "blob.token", world.ids.token),
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
"""Where shared storage keeps what is no model's."""


def _share(areas: FileAreas, cache: Area, world: WorkerPorts, group: int) -> None:
    areas.data.share_with(group)
    areas.staging.share_with(group)
    for name in _IN_CACHE:
        part = world.open_area(cache.root / name)
        part.share_with(group)
        part.close()


def _private(settings: WorkerSettings, disk: Disk) -> tuple[Path, ...]:
    """With a `corral up` around it, its keys and store as well."""
    above = settings.data_dir.parent
    with suppress(PermissionError):  # no `corral up` of ours: that one can list its own directory
        if above / "keys" in disk.list(above):
            return (above,)
    return (settings.data_dir,)


def _supervisor(
    settings: WorkerSettings,
    world: WorkerPorts,
    tasks: asyncio.TaskGroup,
    news: asyncio.Event,
    nvml: Nvml | None,
    isolation: Isolation,
) -> Supervisor:
    first, _, last = settings.backend_ports.partition("-")
    state = settings.data_dir / "run"
    if shared_group(isolation, settings.backend_user) is not None and not isolation.mounts:
        world.disk.let_through(settings.data_dir)  # backends walk to their version
    paths = settings.backend_paths
    local = LocalSettings(
        state=state,
        environment=world.environment,
        pass_on=settings.backend_environment,
        isolation=isolation,
        private=_private(settings, world.disk),
        weights=(settings.data_dir / "models", settings.data_dir / "cache" / "models"),
        readable=tuple(path for path in paths if not path.endswith(WRITABLE)),
        writable=tuple(path.removesuffix(WRITABLE) for path in paths if path.endswith(WRITABLE)),
    )
    processes = world.open_processes(local, nvml)
    ports = Ports(read_port_pool(PortSpan(int(first), int(last))), world.clock)

    def changed(_view: ProcessView) -> None:
        news.set()

    policy = RestartPolicy(budget=settings.backend_restarts, base_s=settings.backend_restart_delay_s)
    return Supervisor(
        tasks, processes, ports, clock=world.clock, ids=world.ids, probe_of=probe_of, changed=changed, policy=policy
    )


def _areas(opened: AsyncExitStack, data_dir: Path, world: WorkerPorts, quota_bytes: int | None) -> FileAreas:
    # Not `staging`: there the installer builds versions, and frontends have no business in it.
    models, data, inbox = (world.open_area(data_dir / name) for name in ("models", "data", "inbox"))
    areas = FileAreas(models, data, inbox, world.ids.uuid, quota_bytes)
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
