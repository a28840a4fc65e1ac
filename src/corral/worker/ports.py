"""The external dependencies of a worker. The worker role passes the real ones; tests can pass simulated ones."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from corral.artifacts import BackendRequest, CancelToken, Catalogue, InstalledBackend, InstalledVersion
from corral.artifacts.install.gc import Freed
from corral.artifacts.install.weights import KeptFile, PlacedFile
from corral.artifacts.progress import OnProgress
from corral.artifacts.requests import ModelFile
from corral.artifacts.settings import ArtifactSettings, GallerySettings, Peer
from corral.artifacts.sources.site import Site
from corral.bus.client import Bus, BusOptions
from corral.system import Clock, Disk, Ids
from corral.system.http_call import HttpCall
from corral.worker.files.areas import Area
from corral.worker.hardware import Nvml, Roots
from corral.worker.processes.isolation import Isolation, IsolationSetting
from corral.worker.processes.local import LocalSettings
from corral.worker.processes.machine_port import Processes


class Fetch(Protocol):
    """Finds, downloads, verifies, unpacks and stores versions of backends on this machine."""

    async def read_catalogue(self, galleries: tuple[GallerySettings, ...] | None = None) -> Catalogue: ...

    def request_for(
        self,
        catalogue: Catalogue,
        name: str,
        capability: str,
        *,
        substitute: bool = False,
        galleries: tuple[GallerySettings, ...] | None = None,
    ) -> BackendRequest: ...

    async def install(
        self,
        request: BackendRequest,
        *,
        force: bool = False,
        on_progress: OnProgress | None = None,
        cancel: CancelToken | None = None,
    ) -> InstalledVersion: ...

    async def list_backends(self) -> Sequence[InstalledBackend]: ...

    async def rollback(self, name: str, *, to: str | None = None) -> InstalledVersion: ...

    async def remove(self, name: str) -> None: ...

    async def list_files(self) -> Sequence[KeptFile]: ...

    def release(self, digests: Iterable[str]) -> None: ...

    async def collect_garbage(self, *, in_use: Collection[Path], spare_s: float) -> Freed: ...

    async def sweep_partials(self) -> int: ...

    async def install_files(
        self,
        files: Sequence[ModelFile],
        *,
        target_dir: Path | None = None,
        peers: tuple[Peer, ...] = (),
        on_progress: OnProgress | None = None,
        cancel: CancelToken | None = None,
    ) -> list[PlacedFile]: ...

    def find_blob(self, digest: str) -> Path | None: ...

    def find_partial(self, digest: str) -> Path | None: ...

    def watch_blob(self, digest: str, changed: Callable[[], None]) -> AbstractContextManager[None]: ...

    def share_downloads(self, site: Site) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    clock: Clock
    ids: Ids
    disk: Disk
    connect_bus: Callable[[BusOptions], AbstractAsyncContextManager[Bus]]
    call_frontend: HttpCall
    call_engine: HttpCall
    """For an engine on this machine."""
    open_area: Callable[[Path], Area]
    """Opens a directory for files that are named by clients."""
    open_fetch: Callable[[ArtifactSettings], AbstractAsyncContextManager[Fetch]]
    open_processes: Callable[[LocalSettings, Nvml | None], Processes]
    find_isolation: Callable[[IsolationSetting, Path], Isolation]
    """Blocking: detects how far this machine can confine backends to their own files."""
    hardware: Callable[[Path], Roots]
    """Where to read the hardware from; the path is on the file system of the models."""
    environment: Mapping[str, str] = field(repr=False)
    """Of this process. Backends inherit only an allowlist of it."""
