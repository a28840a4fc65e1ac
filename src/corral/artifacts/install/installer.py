"""Installs artifacts. Install, upgrade, retry, mirror and preload all use this path.

    resolve -> reserve disk space -> layers, in parallel: fetch | hash | inflate | write -> assemble by link
            -> flush -> rename into place -> switch the pointer

A failure before the rename leaves nothing under `backends/`. The switch itself is one rename.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import msgspec
import structlog

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob, BlobStore
from corral.artifacts.content.layers import Layer, LayerDamaged, LayerStore, assemble
from corral.artifacts.content.manifest import DESCRIPTIONS, LOCALAI_LAUNCHER, LOCALAI_RUN, Manifest, check_manifest
from corral.artifacts.content.pieces import (
    FilePiece,
    MemberPiece,
    Piece,
    ResolvedArtifact,
    TreePiece,
    WheelPiece,
    with_digest,
)
from corral.artifacts.content.verify import is_sound
from corral.artifacts.content.versions import InstalledVersion, Metadata, VersionStore, directory_name
from corral.artifacts.digests import Digest, digest_of
from corral.artifacts.disk.flush import settling
from corral.artifacts.disk.in_use import is_used, paths_in_use
from corral.artifacts.disk.locks import held
from corral.artifacts.disk.space import SpaceReservations
from corral.artifacts.disk.staging import Staging, remove_tree
from corral.artifacts.errors import (
    ArtifactError,
    BadManifest,
    Cancelled,
    DigestMismatch,
    DiskFault,
    DiskFull,
    SourceRejected,
    SourceUnavailable,
    UnsafeArchive,
    VersionInUse,
    disk_errors,
)
from corral.artifacts.install.known_weights import KnownWeights
from corral.artifacts.install.layer_builder import Filler, layer_key
from corral.artifacts.install.resolve import FetchDocument, SourceResolver
from corral.artifacts.progress import Phase, ProgressMeter
from corral.artifacts.pypi.wheels import finish_environment
from corral.artifacts.references import parse_reference
from corral.artifacts.requests import BackendRequest
from corral.artifacts.settings import ArtifactSettings, Peer
from corral.artifacts.signatures import SignaturePolicy
from corral.artifacts.sources.huggingface import check_git_oid
from corral.artifacts.sources.peer import PeerDownloads
from corral.artifacts.unpack.budget import UnpackBudget
from corral.artifacts.yaml import load_yaml
from corral.system import Clock
from corral.system.json import prepare_type

log = structlog.get_logger()

EXPANSION = 2  # packed bytes become at least about this many; used to refuse early what surely does not fit
LAUNCHER = "corral_launch.py"
DAMAGE_RETRIES = 2


@dataclass(slots=True)
class _Traces:
    """What this install added to the shared stores, so that a failure can remove it again."""

    layers: list[str] = field(default_factory=list)
    pieces: tuple[Piece, ...] = ()


@dataclass(slots=True, kw_only=True)
class Installer:
    settings: ArtifactSettings
    clock: Clock
    resolver: SourceResolver
    blobs: BlobStore
    layers: LayerStore
    versions: VersionStore
    staging: Staging
    reservations: SpaceReservations
    peers: PeerDownloads

    @property
    def known_weights(self) -> KnownWeights:
        return KnownWeights(self.settings.data_dir / "weights")

    @property
    def locks_dir(self) -> Path:
        return self.settings.data_dir / "locks"

    def install(
        self, request: BackendRequest, cancel: CancelToken, meter: ProgressMeter, *, force: bool = False
    ) -> InstalledVersion:
        """Installs a backend and makes the resolved version current. Repeating it changes nothing, unless `force` is
        set: then the version is built again, and so are damaged layers."""
        directory_name(request.build.name)
        if request.manifest is not None:
            check_manifest(request.manifest)
        with (
            held(self.locks_dir, "collect", cancel, shared=True),
            held(self.locks_dir, f"backend-{directory_name(request.build.name)}", cancel),
            self.joined_by(request.peers) as installer,
        ):
            try:
                return installer._from_first_that_works(request, cancel, meter, force=force)
            except FileNotFoundError as error:
                raise DiskFault(
                    f"{error.filename} no longer exists: something removed it or its directory while"
                    f" {request.build.name} was being installed. Restore the data directory and start the worker again."
                ) from error

    @contextmanager
    def joined_by(self, peers: tuple[Peer, ...]) -> Iterator["Installer"]:
        """The installer with the peers that a frontend named for one install."""
        with self.peers.joined_by(peers) as joined:
            yield replace(self, peers=joined)

    def _from_first_that_works(
        self, request: BackendRequest, cancel: CancelToken, meter: ProgressMeter, *, force: bool
    ) -> InstalledVersion:
        problems: list[ArtifactError] = []
        for uri in request.build.uris:
            for problem in problems[-1:]:  # the caller reports the last one
                log.warning("artifact.source_failed", backend=request.build.name, next=uri, error=str(problem))
            try:
                return self._from_one(request, uri, cancel, meter, force=force)
            except (SourceUnavailable, SourceRejected, DigestMismatch) as error:
                problems.append(error)
        if not problems:
            raise SourceRejected(f"Backend {request.build.name} has no source.", status=404)
        if len(problems) == 1:
            raise problems[0]
        reasons = " ".join(f"{uri}: {problem}" for uri, problem in zip(request.build.uris, problems, strict=True))
        retryable = any(isinstance(problem, SourceUnavailable) for problem in problems)
        if retryable:
            raise SourceUnavailable(f"No source of {request.build.name} could be used. {reasons}")
        raise SourceRejected(f"No source of {request.build.name} could be used. {reasons}", status=404)

    def _from_one(
        self, request: BackendRequest, uri: str, cancel: CancelToken, meter: ProgressMeter, *, force: bool
    ) -> InstalledVersion:
        started_s = self.clock.monotonic_s()
        meter.enter(Phase.RESOLVING, uri)
        with self._taking_documents() as fetch:
            resolved = self.resolver.resolve(
                parse_reference(uri), cancel, sha256=request.sha256, signatures=request.signatures, fetch=fetch
            )
            try:
                return self._from_resolved(request, uri, resolved, cancel, meter, started_s, force=force)
            finally:
                _forget_scratch(resolved)

    @contextmanager
    def _taking_documents(self) -> Iterator[FetchDocument]:
        """Fetches the documents of an image. Those that were not here before are removed with a failed install, unless
        it can be continued."""
        new: list[Digest] = []

        def fetch(blob: Blob, cancel: CancelToken) -> bytes:
            if blob.digest is not None and self.blobs.find(blob.digest) is None:
                new.append(blob.digest)
            return self.fetch_document(blob, cancel)

        try:
            yield fetch
        except ArtifactError as error:
            if not (isinstance(error, SourceUnavailable) or (isinstance(error, Cancelled) and error.keep_partials)):
                with _best_effort():
                    for digest in new:
                        self.blobs.remove(digest)
            raise

    def fetch_document(self, blob: Blob, cancel: CancelToken) -> bytes:
        """A manifest or config, like a layer: from this disk, from another node, or once for the site."""
        digest = self.blobs.fetch(self.peers.before(blob), cancel, ProgressMeter(None, self.clock))
        return self.blobs.path(digest).read_bytes()

    def inspect(self, uri: str, cancel: CancelToken, signatures: SignaturePolicy | None = None) -> ResolvedArtifact:
        """The pieces of a reference. No large download is made or kept, but a source package, where builds are allowed,
        has to be built before its requirements are known."""
        resolved = self.resolver.resolve(parse_reference(uri), cancel, signatures=signatures)
        _forget_scratch(resolved)
        return resolved

    def _from_resolved(
        self,
        request: BackendRequest,
        uri: str,
        resolved: ResolvedArtifact,
        cancel: CancelToken,
        meter: ProgressMeter,
        started_s: float,
        *,
        force: bool,
    ) -> InstalledVersion:
        check_startable(request, resolved)
        resolved = self.pinned(resolved, cancel, meter)
        digest = _known(resolved)
        if request.digest is not None and digest != request.digest:
            raise DigestMismatch(f"{uri} now resolves to {digest}, but {request.digest} was requested.")
        present = self.versions.find(request.build.name, digest)
        if present is not None and force:
            self._check_replaceable(resolved, present, cancel)
            present = None
        if present is None:
            version = self._make_current(self._build(request, uri, resolved, cancel, meter, started_s))
        else:
            self._describe_again(request, uri, resolved, present)
            version = self.versions.make_current(request.build.name, digest)
        if not self.settings.keep_blobs:
            self._drop_blobs(resolved)
        meter.finish()
        log.info("artifact.installed", backend=request.build.name, digest=digest, source=resolved.source)
        return version

    def _make_current(self, built: InstalledVersion) -> InstalledVersion:
        try:
            return self.versions.make_current(built.name, Digest(built.digest))
        except (DiskFull, DiskFault):
            with _best_effort():
                self.versions.remove_version(built)
            raise

    def _check_replaceable(self, resolved: ResolvedArtifact, present: InstalledVersion, cancel: CancelToken) -> None:
        """Before a version is built again: checks that nothing runs from it, and drops damaged layers."""
        if is_used(present.path, paths_in_use(self.settings.backends_dir)):
            raise VersionInUse(f"A process still uses {present.name} {present.digest}. Stop it first.")
        for key in filter(None, map(layer_key, resolved.pieces)):
            layer = self.layers.find(key)
            if layer is not None and not is_sound(layer, cancel):
                log.warning("artifact.layer_damaged", layer=key)
                self.layers.remove(key)

    def pinned(self, resolved: ResolvedArtifact, cancel: CancelToken, meter: ProgressMeter) -> ResolvedArtifact:
        """Gives every piece a digest. Only unpinned pieces have to be fetched for that."""
        if all(isinstance(piece, TreePiece) or piece.blob.digest for piece in resolved.pieces):
            return resolved
        meter.expect(resolved.packed_bytes)
        meter.enter(Phase.DOWNLOADING)
        pieces: list[Piece] = []
        for piece in resolved.pieces:
            if isinstance(piece, TreePiece) or piece.blob.digest:
                pieces.append(piece)
                continue
            with self.reservations.reserve(self.blobs.bytes_missing(piece.blob), piece.blob.name, self.reclaim):
                digest = self.blobs.fetch(piece.blob, cancel, meter)
            self.check_git(piece.blob, digest)
            pieces.append(with_digest(piece, digest))
        found = resolved.digest
        if found is None:
            digests = [piece.digest if isinstance(piece, TreePiece) else piece.blob.digest for piece in pieces]
            found = digests[0] if len(digests) == 1 else digest_of("\n".join(map(str, digests)).encode())
        return replace(resolved, digest=found, pieces=tuple(pieces))

    def check_git(self, blob: Blob, digest: Digest) -> None:
        if not blob.git_oid:
            return
        try:
            check_git_oid(self.blobs.path(digest).read_bytes(), blob.git_oid, blob.name)
        except DigestMismatch:
            self.blobs.remove(digest)
            raise

    def _build(
        self,
        request: BackendRequest,
        uri: str,
        resolved: ResolvedArtifact,
        cancel: CancelToken,
        meter: ProgressMeter,
        started_s: float,
    ) -> InstalledVersion:
        digest = _known(resolved)
        traces = _Traces(pieces=resolved.pieces)
        staged = self.staging.new_path()
        try:
            with (
                settling(self.settings.data_dir) as settle,
                self.reservations.reserve(self._needed(resolved), request.build.name, self.reclaim),
            ):
                layers = self._assembled(resolved, staged, cancel, meter, traces)
                manifest = self._finish_tree(request, resolved, staged, digest)
                cancel.check()
                metadata = self._metadata(request, uri, resolved, layers, manifest, started_s)
                self.versions.write_metadata(staged, metadata)
                # Everything the version is made of must be on the disk before its name is.
                settle(cancel)
            path = self.versions.add(request.build.name, digest, staged)
            return InstalledVersion(name=request.build.name, path=path, metadata=metadata, current=False)
        except (BadManifest, DiskFull, DiskFault, UnsafeArchive, Cancelled) as error:
            cancelled = isinstance(error, Cancelled)
            with _best_effort():
                self.staging.discard(staged, behind=cancelled)
                if not (isinstance(error, Cancelled) and error.keep_partials):
                    self._take_away(traces, behind=cancelled)
                if isinstance(error, DiskFault):
                    self._remove_unflushed(traces.pieces)
            raise
        except BaseException:  # cancelled: what was assembled is removed
            with _best_effort():
                remove_tree(staged)
            raise

    def _needed(self, resolved: ResolvedArtifact) -> int:
        """The bytes that are certainly written: missing packed bytes, and the unpacked bytes of missing layers."""
        needed = 0
        for piece in resolved.pieces:
            key = layer_key(piece)
            if key is not None and self.layers.find(key):
                continue
            if isinstance(piece, TreePiece):
                needed += piece.size
                continue
            needed += self.blobs.bytes_missing(piece.blob) + (piece.blob.size or 0) * EXPANSION
        return needed

    def _assembled(
        self, resolved: ResolvedArtifact, staged: Path, cancel: CancelToken, meter: ProgressMeter, traces: _Traces
    ) -> list[Layer]:
        """Unpacks all layers and links the version's tree from them. A damaged layer is unpacked once more."""
        meter.expect(resolved.packed_bytes)
        meter.enter(Phase.DOWNLOADING)
        budget_bytes = max(0, self.reservations.free_bytes() - self.settings.disk_reserve_bytes)
        for attempt in range(DAMAGE_RETRIES + 1):
            local = CancelToken(parent=cancel)
            budget = UnpackBudget(self.settings.unpack, self.clock, disk_bytes=budget_bytes)
            filler = Filler(blobs=self.blobs, budget=budget, cancel=local, meter=meter)
            with disk_errors("staging the version"):
                staged.mkdir()
            try:
                return self._link_as_ready(resolved.pieces, staged, filler, traces)
            except LayerDamaged as damage:
                if attempt == DAMAGE_RETRIES:
                    raise DiskFault(f"Layer {damage.layer.key[:12]} keeps changing on disk.") from damage
                log.warning("artifact.layer_damaged", layer=damage.layer.key, path=str(damage))
                self.layers.remove(damage.layer.key)
                remove_tree(staged)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _link_as_ready(self, pieces: Sequence[Piece], staged: Path, filler: Filler, traces: _Traces) -> list[Layer]:
        """Unpacks layers in parallel and links each as soon as all layers below it are linked."""
        done: list[Layer] = []
        with ThreadPoolExecutor(self.settings.parallel_layers, thread_name_prefix="layer") as pool:
            futures: list[Future[Layer]] = [pool.submit(self._layer, piece, filler, traces) for piece in pieces]
            try:
                for position, future in enumerate(futures):
                    layer = self._result(future, futures[position:])
                    if position + 1 == len(futures):
                        filler.meter.enter(Phase.EXTRACTING)
                    assemble([layer], staged, filler.cancel)
                    done.append(layer)
            except BaseException:  # the other parts stop before the error is raised
                for future in futures:
                    future.cancel()
                filler.cancel.cancel("another part of the artifact failed", keep_partials=True)
                raise
        return done

    def _result(self, wanted: "Future[Layer]", running: "Sequence[Future[Layer]]") -> Layer:
        """Waits for one layer, and raises immediately when any layer fails."""
        while not wanted.done():
            for future in running:
                if future.done() and (error := future.exception()) is not None:
                    raise error
            with suppress(TimeoutError):
                return wanted.result(timeout=0.1)
        return wanted.result()

    def _layer(self, piece: Piece, filler: Filler, traces: _Traces) -> Layer:
        key = layer_key(piece)
        if key is None:
            raise AssertionError("pieces are pinned before they are unpacked")
        if (layer := self.layers.find(key)) is not None:
            filler.meter.cached(piece.size if isinstance(piece, TreePiece) else piece.blob.size or 0)
            return layer
        traces.layers.append(key)
        if not isinstance(piece, TreePiece):
            piece = replace(piece, blob=self.peers.before(piece.blob))
        tries = 1 if isinstance(piece, TreePiece) else piece.blob.tries
        for tries_left in reversed(range(tries)):
            try:
                return self.layers.ensure(key, lambda root, piece=piece: filler.fill(piece, root), filler.cancel)  # type: ignore[misc]
            except DigestMismatch as error:
                if not tries_left or isinstance(piece, TreePiece):
                    raise
                piece = replace(piece, blob=piece.blob.elsewhere(error))
        raise AssertionError("unreachable: the last try returns or raises")

    def _finish_tree(
        self, request: BackendRequest, resolved: ResolvedArtifact, staged: Path, digest: Digest
    ) -> Manifest:
        if any(isinstance(piece, WheelPiece) for piece in resolved.pieces):
            final = self.versions.path(request.build.name, digest)
            finish_environment(staged, final, interpreter=resolved.interpreter, version=resolved.python)
        manifest = request.manifest or read_manifest(staged)
        if manifest is None:
            raise BadManifest(
                f"{request.build.name} has neither a run.sh nor a Corral manifest, so it cannot be started."
            )
        place_launcher(manifest, staged)
        return manifest

    def _metadata(
        self,
        request: BackendRequest,
        uri: str,
        resolved: ResolvedArtifact,
        layers: Sequence[Layer],
        manifest: Manifest,
        started_s: float,
    ) -> Metadata:
        indexes = [layer.index() for layer in layers]
        return Metadata(
            name=request.build.name,
            alias=request.build.alias,
            gallery_url=request.gallery_url,
            installed_at=_timestamp(self.clock),
            version=request.build.version or resolved.version,
            uri=uri,
            digest=str(resolved.digest),
            source=resolved.source,
            size_bytes=sum(index.unpacked_bytes for index in indexes),
            packed_bytes=sum(index.packed_bytes for index in indexes),
            install_seconds=round(self.clock.monotonic_s() - started_s, 3),
            verified_by=resolved.verified_by,
            platform=resolved.platform,
            layers=[layer.key for layer in layers],
            blobs=[
                *(str(piece.blob.digest) for piece in resolved.pieces if not isinstance(piece, TreePiece)),
                *map(str, resolved.documents),
            ],
            python_lock=list(resolved.python_lock),
            manifest=manifest,
            signatures=request.signatures,
        )

    def _describe_again(
        self, request: BackendRequest, uri: str, resolved: ResolvedArtifact, present: InstalledVersion
    ) -> None:
        """Updates the metadata of an installed version. The gallery may have changed its version, location, manifest or
        signatures."""
        changed = msgspec.structs.replace(
            present.metadata,
            gallery_url=request.gallery_url or present.metadata.gallery_url,
            version=request.build.version or resolved.version or present.metadata.version,
            uri=uri,
            manifest=request.manifest or present.metadata.manifest,
            alias=request.build.alias or present.metadata.alias,
            signatures=request.signatures or present.metadata.signatures,
            verified_by=resolved.verified_by if request.signatures else present.metadata.verified_by,
        )
        if changed != present.metadata:
            self.versions.write_metadata(present.path, changed)

    def _drop_blobs(self, resolved: ResolvedArtifact) -> None:
        for piece in resolved.pieces:
            if not isinstance(piece, TreePiece) and piece.blob.digest is not None:
                self.blobs.remove(piece.blob.digest)
        for digest in resolved.documents:
            self.blobs.remove(digest)

    def _take_away(self, traces: _Traces, *, behind: bool) -> None:
        for piece in traces.pieces:
            if isinstance(piece, TreePiece):
                continue
            self.blobs.discard_partial(piece.blob)
            if layer_key(piece) in traces.layers and piece.blob.digest is not None:
                self.blobs.remove(piece.blob.digest)
        for key in traces.layers:
            self.layers.remove(key, behind=behind)

    def _remove_unflushed(self, pieces: Sequence[Piece]) -> None:
        """Removes what may not be on disk: a failed write is reported once only, and the next install must not use it.
        Layers of an existing version were flushed with it and stay."""
        flushed = {
            key for backend in self.versions.list() for version in backend.versions for key in version.metadata.layers
        }
        for key in filter(None, map(layer_key, pieces)):
            if key not in flushed:
                self.layers.remove(key)

    def reclaim(self, missing: int) -> None:
        """Frees space for an install: pending removals first, then packed bytes whose content is unpacked."""
        free_bytes = self.reservations.free_bytes()
        self.staging.await_removals()
        missing -= self.reservations.free_bytes() - free_bytes
        for digest in list(self.blobs.digests()):
            if missing <= 0:
                return
            if self.blobs.path(digest).stat().st_nlink == 1:
                freed = self.blobs.remove(digest)
                missing -= freed
                log.info("artifact.blob_dropped_for_space", digest=digest, bytes=freed)


@contextmanager
def _best_effort() -> Iterator[None]:
    """Cleaning up after a failure must not hide that failure. The next start sweeps what remains."""
    try:
        yield
    except (OSError, ArtifactError) as error:
        log.warning("artifact.not_cleaned_up", error=str(error))


def _forget_scratch(resolved: ResolvedArtifact) -> None:
    if resolved.scratch is not None:
        remove_tree(resolved.scratch)


def _known(resolved: ResolvedArtifact) -> Digest:
    if resolved.digest is None:
        raise AssertionError("an artifact is pinned before it is built")
    return resolved.digest


def _timestamp(clock: Clock) -> str:
    return (
        datetime.fromtimestamp(clock.now_ms() / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def check_startable(request: BackendRequest, resolved: ResolvedArtifact) -> None:
    """Rejects an artifact of single files without a manifest by their names, before gigabytes are fetched."""
    names = [Path(piece.path).name for piece in resolved.pieces if isinstance(piece, FilePiece | MemberPiece)]
    if (
        request.manifest is None
        and len(names) == len(resolved.pieces)
        and not {*names} & {*DESCRIPTIONS, LOCALAI_LAUNCHER}
    ):
        raise BadManifest(
            f"{request.build.name} is not a backend: none of its files"
            f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
            " defines a start command. To download a model's weights, use `corral artifacts pull --model`."
        )


def read_manifest(root: Path) -> Manifest | None:
    """The artifact's own manifest: `corral.yaml`, `corral.json`, or LocalAI's `run.sh`."""
    for name in DESCRIPTIONS:
        file = root / name
        if file.is_file() and not file.is_symlink():
            if file.stat().st_size > 1 << 20:
                raise BadManifest(f"{name} is too large for a manifest.")
            prepare_type(Manifest)
            try:
                return check_manifest(msgspec.convert(load_yaml(file.read_bytes()), Manifest))
            except msgspec.ValidationError as error:
                raise BadManifest(f"{name} cannot be read: {error}.") from error
    launcher = root / LOCALAI_LAUNCHER
    return LOCALAI_RUN if launcher.is_file() and not launcher.is_symlink() else None


def place_launcher(manifest: Manifest, root: Path) -> None:
    if not manifest.launcher:
        return
    source = resources.files("corral.artifacts.launchers").joinpath(f"{manifest.launcher}.py")
    if not source.is_file():
        raise BadManifest(f"Corral has no launcher {manifest.launcher!r}.")
    (root / LAUNCHER).unlink(missing_ok=True)
    (root / LAUNCHER).write_bytes(source.read_bytes())
