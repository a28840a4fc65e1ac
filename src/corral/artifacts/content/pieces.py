"""The result of resolving a reference, before any large download: the digest that names the version, and the pieces of
the artifact. Every kind of source resolves to this, and one installer takes it from here."""

from dataclasses import dataclass, replace
from pathlib import Path

from corral.artifacts.content.blobs import Blob
from corral.artifacts.digests import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class TarPiece:
    """A tar archive in any compression; an image's layer when `diff_id` is set."""

    blob: Blob
    diff_id: Digest | None = None
    whiteouts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipPiece:
    blob: Blob


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelPiece:
    blob: Blob
    package: str
    version: str
    python: str
    """The version of Python for which it is unpacked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """One file that is not unpacked."""

    blob: Blob
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPiece:
    """One file inside a zip or wheel."""

    blob: Blob
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePiece:
    """A directory on this machine, copied."""

    path: Path
    digest: Digest
    size: int


BlobPiece = TarPiece | ZipPiece | WheelPiece | FilePiece | MemberPiece
Piece = BlobPiece | TreePiece


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedArtifact:
    digest: Digest | None
    """The name of the version. For an image: the digest its tag pointed at when it was resolved. None for unpinned
    locations, whose bytes must be fetched first."""
    source: str
    """The reference with its tag pinned to that digest."""
    pieces: tuple[Piece, ...]
    verified_by: str
    """How the bytes were verified: `oci digest`, `sha256 from gallery`, `index hash`, `first download` ..."""
    version: str = ""
    python_lock: tuple[str, ...] = ()
    """For PyPI sources: every package pinned, as `name==version sha256:...`. One that was built here
    says of what: `name==version sha256:... built from source package sha256:...`."""
    python: str = ""
    """For PyPI sources: the version of the interpreter that the environment is for."""
    interpreter: str = ""
    """Its path."""
    platform: str = ""
    documents: tuple[Digest, ...] = ()
    """For images: manifests and config, which are kept with the version for other nodes."""
    scratch: Path | None = None
    """The directory of an unpacked saved image or of built wheels. The caller that resolved it removes it."""

    @property
    def packed_bytes(self) -> int | None:
        sizes = [piece.size if isinstance(piece, TreePiece) else piece.blob.size for piece in self.pieces]
        return None if any(size is None for size in sizes) else sum(size for size in sizes if size is not None)


def with_digest(piece: BlobPiece, digest: Digest) -> BlobPiece:
    """The same piece with its bytes pinned."""
    return replace(piece, blob=replace(piece.blob, digest=digest))
