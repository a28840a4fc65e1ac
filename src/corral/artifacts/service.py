"""The interface for the rest of Corral. Everything is `async`, and the work runs in threads."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.pieces import ResolvedArtifact
from corral.artifacts.content.verify import Verified
from corral.artifacts.content.versions import InstalledBackend, InstalledVersion, directory_name
from corral.artifacts.digests import Digest, parse_digest
from corral.artifacts.disk.in_use import is_used, paths_in_use
from corral.artifacts.disk.locks import held
from corral.artifacts.errors import Cancelled, NoVariantFits
from corral.artifacts.galleries.builds import pick_model
from corral.artifacts.galleries.catalogue import (
    Catalogue,
    ModelCatalogue,
    read_backends,
    read_model,
    read_model_catalogue,
    read_models,
    signatures_for,
)
from corral.artifacts.galleries.entries import ModelEntry, ResolvedModel, backend_request
from corral.artifacts.galleries.sources import GallerySources
from corral.artifacts.install.gc import Freed, collect_garbage, parts_of
from corral.artifacts.install.repair import request_again, verify_backend
from corral.artifacts.install.weights import KeptFile, PlacedFile, install_files, list_files
from corral.artifacts.oci.pins import Pin, pin_location
from corral.artifacts.progress import OnProgress, ProgressMeter
from corral.artifacts.requests import BackendRequest, ModelFile
from corral.artifacts.settings import ArtifactSettings, GallerySettings, Peer
from corral.artifacts.signatures import SignaturePolicy
from corral.artifacts.sources.site import Site
from corral.artifacts.wiring import build_installer
from corral.core.backends.variants import Chosen
from corral.core.models.variants import PickedBuild
from corral.core.transfer import TransferProgress
from corral.system import Clock, Ids

Result = TypeVar("Result")

PARTIALS_KEPT_S = 14 * 24 * 3600.0
THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What the sweep at start removed."""

    dead_processes: int
    partial_bytes: int


class Artifacts:
    """One data directory. `async with` sweeps it at the start and stops all work at the end."""

    def __init__(self, settings: ArtifactSettings, *, clock: Clock, ids: Ids) -> None:
        self.settings = settings
        self._clock = clock
        self._ids = ids
        self._installer = build_installer(settings, clock=clock, ids=ids)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="artifacts")
        self._running: set[CancelToken] = set()
        self._released: set[str] = set()  # layers and blobs of what was removed
        self._sources = GallerySources(
            cache_dir=settings.data_dir / "galleries",
            outbound=self._installer.resolver.outbound,
            resolver=self._installer.resolver,
            blobs=self._installer.blobs,
            clock=clock,
            ids=ids,
        )

    async def __aenter__(self) -> Self:
        await self.sweep()
        return self

    async def __aexit__(self, *_: object) -> None:
        for token in list(self._running):
            token.cancel("Corral is stopping", keep_partials=True)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown(wait=True)
        self._installer.resolver.outbound.close()
        self._installer.staging.close()

    # Backends

    async def read_catalogue(
        self, galleries: tuple[GallerySettings, ...] | None = None, *, ask: bool = True
    ) -> Catalogue:
        """Every backend gallery, or the given ones. A gallery that cannot be reached is read from its cached copy;
        without `ask`, all are."""
        chosen = self.settings.galleries if galleries is None else galleries
        return await self._run(lambda token: read_backends(self._sources, chosen, token, ask=ask))

    def request_for(
        self,
        catalogue: Catalogue,
        name: str,
        capability: str,
        *,
        substitute: bool = False,
        galleries: tuple[GallerySettings, ...] | None = None,
    ) -> BackendRequest:
        """The request that installs a gallery name on a node with that capability. Raises NoVariantFits with the
        reason."""
        resolution = catalogue.resolve(name, capability, substitute=substitute)
        if not isinstance(resolution, Chosen):
            raise NoVariantFits(f"{resolution.reason}.")
        entry = catalogue.chosen_entry(name, resolution)
        signatures = signatures_for(self.settings.galleries if galleries is None else galleries, catalogue, entry)
        return replace(backend_request(entry), signatures=signatures)

    async def inspect(self, uri: str, *, signatures: SignaturePolicy | None = None) -> ResolvedArtifact:
        """The pieces of a reference for this platform. Fetches documents, never a layer. Where source builds are
        allowed, it builds source packages, because their requirements are not known before."""
        return await self._run(lambda token: self._installer.inspect(uri, token, signatures))

    async def pin(self, uri: str, sha256: Digest | None = None, *, signatures: SignaturePolicy | None = None) -> Pin:
        """The version that a location means now, for every platform. Only asks a registry for documents."""
        registries = self._installer.resolver.registries
        return await self._run(lambda token: pin_location(registries, uri, sha256, token, signatures))

    async def install(
        self,
        request: BackendRequest,
        *,
        force: bool = False,
        on_progress: OnProgress | None = None,
        cancel: CancelToken | None = None,
    ) -> InstalledVersion:
        """Installs or upgrades a backend and makes the version current. Repeating it is harmless. With `force` the
        version is built again, unless a process runs from it. `on_progress` runs on the event loop."""
        meter = self._meter(on_progress)
        return await self._run(lambda token: self._installer.install(request, token, meter, force=force), cancel)

    async def verify(self, name: str) -> list[Verified]:
        """Compares every version of a backend, file by file, with what was unpacked."""
        return await self._run(lambda token: verify_backend(self._installer, name, token))

    async def repair(self, version: InstalledVersion, *, on_progress: OnProgress | None = None) -> InstalledVersion:
        """Builds a version again from its source and makes it current."""
        return await self.install(request_again(version), force=True, on_progress=on_progress)

    async def list_backends(self) -> tuple[InstalledBackend, ...]:
        return await self._run(lambda _: self._installer.versions.list())

    async def current(self, name: str) -> InstalledVersion:
        """The version new processes start from: its directory and its manifest."""
        return await self._run(lambda _: self._installer.versions.current(name))

    async def rollback(self, name: str, *, to: str | None = None) -> InstalledVersion:
        """Points `current` at an earlier version, by default the previous one. Nothing is fetched."""
        digest = parse_digest(to) if to else None
        return await self._locked(name, lambda: self._installer.versions.rollback(name, digest))

    async def remove(self, name: str, *, in_use: Collection[Path] = ()) -> None:
        """Removes every version. Rejected while a process runs from one."""

        def running(path: Path) -> bool:
            return is_used(path, {*in_use, *paths_in_use(self.settings.backends_dir)})

        def remove() -> list[str]:
            backend = self._installer.versions.backend(name)
            self._installer.versions.remove(name, running)
            return [key for version in backend.versions for key in parts_of(version)] if backend is not None else []

        self._released.update(await self._locked(name, remove))

    def release(self, digests: Iterable[str]) -> None:
        """Marks blobs whose files were removed as garbage, unless another file or version needs them."""
        self._released.update(digests)

    async def collect_garbage(
        self, *, keep: int | None = None, in_use: Collection[Path] = (), spare_s: float = 0.0
    ) -> Freed:
        """Removes surplus versions, then layers and blobs that no version needs, if they are older than `spare_s` or
        belonged to a version that was removed. Waits until no install runs."""
        count = self.settings.keep_versions if keep is None else keep
        # What is released from now on is the next run's, also where this one has it: it may have found it still needed.
        released, self._released = frozenset(self._released), set()
        try:
            return await self._run(
                lambda token: collect_garbage(self._installer, count, in_use, token, spare_s=spare_s, released=released)
            )
        except BaseException:  # not collected: the next collection gets them
            self._released |= released
            raise

    async def sweep(self) -> Swept:
        """Removes what killed processes left. Safe while other processes use the same directory."""
        return await self._run(lambda _: self._sweep())

    def _sweep(self) -> Swept:
        dead = self._installer.staging.sweep()
        self._installer.versions.sweep()
        return Swept(dead_processes=dead, partial_bytes=self._sweep_partials())

    async def sweep_partials(self) -> int:
        """Removes partial downloads that nobody has resumed for a long time. Returns the freed bytes."""
        return await self._run(lambda _: self._sweep_partials())

    def _sweep_partials(self) -> int:
        return self._installer.blobs.sweep(now_s=self._clock.now_ms() / 1000, older_than_s=PARTIALS_KEPT_S)

    # Models and blobs

    async def read_models(self, galleries: tuple[GallerySettings, ...] | None = None) -> list[ModelEntry]:
        """Corral's own models, then those of the given or configured galleries."""
        chosen = self.settings.model_galleries if galleries is None else galleries
        return await self._run(lambda token: read_models(self._sources, chosen, token))

    async def pick_model(
        self,
        entries: Sequence[ModelEntry],
        name: str,
        *,
        capability: str,
        memory_bytes: int | None,
        catalogue: Catalogue,
        pin: str = "",
    ) -> tuple[ModelEntry, PickedBuild]:
        """The build of a model that suits a node best, with the reason. `memory_bytes` is VRAM, else RAM. `pin` selects
        a build."""

        def runs_here(backend: str) -> bool:
            known = backend.lower() in catalogue.by_name
            return not known or isinstance(catalogue.resolve(backend, capability), Chosen)

        return await self._run(
            lambda token: pick_model(
                self._sources,
                entries,
                name,
                capability=capability,
                memory_bytes=memory_bytes,
                runs_here=runs_here,
                pin=pin,
                cancel=token,
            )
        )

    async def read_model_catalogue(self, galleries: tuple[GallerySettings, ...], *, ask: bool = True) -> ModelCatalogue:
        return await self._run(lambda token: read_model_catalogue(self._sources, galleries, token, ask=ask))

    async def read_model(self, entry: ModelEntry) -> ResolvedModel:
        return await self._run(lambda token: read_model(self._sources, entry, token))

    async def install_files(
        self,
        files: Sequence[ModelFile],
        *,
        target_dir: Path | None = None,
        peers: tuple[Peer, ...] = (),
        on_progress: OnProgress | None = None,
        cancel: CancelToken | None = None,
    ) -> list[PlacedFile]:
        """Puts weights into the models directory. Nothing is placed unless all files are verified. `peers` are tried
        first."""
        meter = self._meter(on_progress)
        target = target_dir or self.settings.models_dir

        def install(token: CancelToken) -> list[PlacedFile]:
            with self._installer.joined_by(peers) as installer:
                return install_files(installer, files, target, self._ids, token, meter)

        return await self._run(install, cancel)

    async def list_files(self) -> list[KeptFile]:
        """The files of the models directory, with the digests of those that were fetched."""
        return await self._run(lambda _: list_files(self._installer, self.settings.models_dir))

    def find_blob(self, digest: str) -> Path | None:
        """A verified blob for another worker to fetch, or None."""
        return self._installer.blobs.find(parse_digest(digest))

    def find_partial(self, digest: str) -> Path | None:
        """The bytes of an unfinished blob, which are not verified yet, or None."""
        return self._installer.blobs.find_partial(parse_digest(digest))

    def watch_blob(self, digest: str, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `changed`, from any thread, when bytes of the blob arrive or its download ends."""
        return self._installer.blobs.watching(parse_digest(digest), changed)

    def share_downloads(self, site: Site) -> None:
        """Coordinates all further downloads with the other nodes of the site."""
        self._installer.peers = replace(self._installer.peers, site=site)

    # Threads

    def _meter(self, on_progress: OnProgress | None) -> ProgressMeter:
        if on_progress is None:
            return ProgressMeter(None, self._clock)
        loop = asyncio.get_running_loop()

        def report(progress: TransferProgress) -> None:
            loop.call_soon_threadsafe(on_progress, progress)

        return ProgressMeter(report, self._clock)

    async def _locked(self, name: str, work: Callable[[], Result]) -> Result:
        def locked(token: CancelToken) -> Result:
            with held(self._installer.locks_dir, f"backend-{directory_name(name)}", token):
                return work()

        return await self._run(locked)

    async def _run(self, work: Callable[[CancelToken], Result], cancel: CancelToken | None = None) -> Result:
        """Runs `work` in a thread. When the task is cancelled, the thread is cancelled and waited for, so that nothing
        is written afterwards."""
        token = cancel or CancelToken()
        self._running.add(token)
        future = asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(token))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            token.cancel("the task was cancelled", keep_partials=True)
            with suppress(Cancelled):
                await asyncio.shield(future)
            raise
        finally:
            self._running.discard(token)


__all__ = ["Artifacts", "Swept"]
