"""OCI images and indexes: picks the manifest and the layers, and checks that they match the digest."""

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from corral.artifacts.content.blobs import Blob, BlobSource
from corral.artifacts.content.pieces import FilePiece, Piece, ResolvedArtifact, TarPiece
from corral.artifacts.digests import Digest, digest_of, parse_digest
from corral.artifacts.errors import DigestMismatch, NoPlatformFits, UnsafeArchive
from corral.system.json import decode_json

Document = TypeVar("Document")

MANIFEST_BYTES = 4 << 20
MAX_LAYERS = 256
MAX_NESTING = 3
MAX_INDEX_ENTRIES = 512

INDEX_TYPES = frozenset(
    {"application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"}
)
MANIFEST_TYPES = frozenset(
    {"application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"}
)
ACCEPT = ", ".join(sorted(INDEX_TYPES | MANIFEST_TYPES))
_CONFIG_TYPES = frozenset(
    {"application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"}
)
_LAYER_TYPES = frozenset(
    {
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
    }
)
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_TITLE = "org.opencontainers.image.title"
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "armv7l": "arm"}


class OciPlatform(msgspec.Struct, frozen=True):
    os: str = ""
    architecture: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


def this_platform() -> OciPlatform:
    """The platform of this machine, as image indexes name it."""
    machine = platform.machine().lower()
    variant = {"aarch64": "v8", "arm64": "v8", "armv7l": "v7"}.get(machine, "")
    return OciPlatform(os=platform.system().lower(), architecture=_ARCHITECTURES.get(machine, machine), variant=variant)


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """`urls` is left out on purpose: a manifest must not redirect to other hosts."""

    media_type: str
    digest: str
    size: int
    platform: OciPlatform | None = None
    annotations: dict[str, str] = {}


class ImageManifest(msgspec.Struct, frozen=True, rename="camel"):
    config: Descriptor
    layers: list[Descriptor]
    media_type: str = ""


class ImageIndex(msgspec.Struct, frozen=True, rename="camel"):
    manifests: list[Descriptor]
    media_type: str = ""


class _RootFs(msgspec.Struct, frozen=True):
    diff_ids: list[str] = []


class Config(msgspec.Struct, frozen=True):
    architecture: str = ""
    os: str = ""
    variant: str = ""
    rootfs: _RootFs = _RootFs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Read access to one repository: a registry, a layout on disk, or a saved archive."""

    name: str
    read_manifest: Callable[[Digest], tuple[bytes, str]]
    """Content and media type of a manifest by digest."""
    read_small: Callable[[Digest, int], bytes]
    """A small blob, such as a config, with a size limit."""
    sources: Callable[[Digest], tuple[BlobSource, ...]]
    manifest_sources: Callable[[Digest], tuple[BlobSource, ...]] | None = None
    """None where manifests are on this machine."""

    def fetching_documents(self, fetch: Callable[[Blob], bytes]) -> "Repository":
        """The same repository with its manifests and configs fetched like layers: from other nodes where they have
        them, and kept for these."""
        manifest_sources = self.manifest_sources
        if manifest_sources is None:
            return self

        def read(what: str, digest: Digest, limit: int, sources: tuple[BlobSource, ...]) -> bytes:
            name = f"{what} {digest[7:19]} of {self.name}"
            return fetch(Blob(name=name, digest=digest, size=None, size_limit=limit, sources=sources))

        return replace(
            self,
            read_manifest=lambda digest: (read("manifest", digest, MANIFEST_BYTES, manifest_sources(digest)), ""),
            read_small=lambda digest, limit: read("config", digest, limit, self.sources(digest)),
        )


def _decode(kind: type[Document], data: bytes, what: str) -> Document:
    try:
        return decode_json(data, kind)
    except msgspec.DecodeError as error:
        raise UnsafeArchive(f"The {what} cannot be read: {error}.") from error


def resolve_image(
    repository: Repository, digest: Digest, platform: OciPlatform, *, source: str, ollama: bool = False
) -> ResolvedArtifact:
    """The pieces of the image `digest` for `platform`. Only manifests and the config are read, never a layer."""
    manifest, _ = _platform_manifest(repository, digest, platform)
    if len(manifest.layers) > MAX_LAYERS:
        raise UnsafeArchive(f"{repository.name} has {len(manifest.layers)} layers; the limit is {MAX_LAYERS}.")
    if manifest.config.media_type in _CONFIG_TYPES and not ollama:
        pieces = _image_pieces(repository, manifest, platform)
    else:
        pieces = _file_pieces(repository, manifest, ollama=ollama)
    return ResolvedArtifact(
        digest=digest, source=source, pieces=pieces, verified_by="oci digest", platform=str(platform)
    )


def _platform_manifest(
    repository: Repository, digest: Digest, platform: OciPlatform, depth: int = 0
) -> tuple[ImageManifest, Digest]:
    if depth >= MAX_NESTING:
        raise UnsafeArchive(f"The index of {repository.name} is nested more than {MAX_NESTING} levels deep.")
    content, media_type = repository.read_manifest(digest)
    if digest_of(content) != digest:
        raise DigestMismatch(f"{repository.name} returned different content for {digest}.")
    kind = _document_type(content, media_type)
    if kind in INDEX_TYPES:
        index = _decode(ImageIndex, content, "image index")
        chosen = pick_platform(index.manifests, platform, repository.name)
        return _platform_manifest(repository, parse_digest(chosen.digest), platform, depth + 1)
    if kind in MANIFEST_TYPES:
        return _decode(ImageManifest, content, "image manifest"), digest
    raise UnsafeArchive(f"{repository.name} has a manifest of the unknown type {kind[:100]!r}.")


def read_platforms(repository: Repository, digest: Digest) -> tuple[str, ...] | None:
    """The platforms of the image as `os/architecture`; None when unknown."""
    content, media_type = repository.read_manifest(digest)
    if digest_of(content) != digest:
        raise DigestMismatch(f"{repository.name} returned different content for {digest}.")
    kind = _document_type(content, media_type)
    if kind in INDEX_TYPES:
        offered = [
            entry.platform for entry in _decode(ImageIndex, content, "image index").manifests[:MAX_INDEX_ENTRIES]
        ]
        named = {f"{one.os}/{one.architecture}" for one in offered if one is not None and one.os != "unknown"}
        return tuple(sorted(named)) or None
    manifest = _decode(ImageManifest, content, "image manifest")
    if manifest.config.media_type not in _CONFIG_TYPES:
        return None
    document = repository.read_small(parse_digest(manifest.config.digest), MANIFEST_BYTES)
    config = _decode(Config, document, "image config")
    return (f"{config.os}/{config.architecture}",) if config.os else None


class _Typed(msgspec.Struct, rename="camel"):
    media_type: str = ""
    manifests: list[msgspec.Raw] | None = None


def _document_type(content: bytes, header: str) -> str:
    """The media type in the document; the header's only if the document has none."""
    typed = _decode(_Typed, content, "image manifest")
    if typed.media_type:
        return typed.media_type
    if typed.manifests is not None:
        return "application/vnd.oci.image.index.v1+json"
    named = header.partition(";")[0].strip()
    return named if named in INDEX_TYPES | MANIFEST_TYPES else "application/vnd.oci.image.manifest.v1+json"


def pick_platform(manifests: list[Descriptor], platform: OciPlatform, name: str) -> Descriptor:
    if len(manifests) > MAX_INDEX_ENTRIES:
        raise UnsafeArchive(f"The index of {name} has {len(manifests)} entries; the limit is {MAX_INDEX_ENTRIES}.")
    images = [entry for entry in manifests if entry.media_type in MANIFEST_TYPES | INDEX_TYPES]
    fitting = [
        entry
        for entry in images
        if entry.platform is not None
        and (entry.platform.os, entry.platform.architecture) == (platform.os, platform.architecture)
    ]
    exact = [entry for entry in fitting if entry.platform is not None and entry.platform.variant == platform.variant]
    if fitting:
        return (exact or fitting)[0]
    unnamed = [entry for entry in images if entry.platform is None]
    if len(images) == 1 and unnamed:
        return unnamed[0]
    offered = sorted({str(entry.platform) for entry in images if entry.platform and entry.platform.os != "unknown"})
    raise NoPlatformFits(f"{name} has no build for {platform}; it offers {', '.join(offered) or 'none'}.")


def _image_pieces(repository: Repository, manifest: ImageManifest, platform: OciPlatform) -> tuple[Piece, ...]:
    digest = parse_digest(manifest.config.digest)
    content = repository.read_small(digest, MANIFEST_BYTES)
    if digest_of(content) != digest or len(content) != manifest.config.size:
        raise DigestMismatch(f"The config of {repository.name} does not have the digest {digest}.")
    config = _decode(Config, content, "image config")
    if config.os and (config.os, config.architecture) != (platform.os, platform.architecture):
        raise NoPlatformFits(f"{repository.name} is built for {config.os}/{config.architecture}, not for {platform}.")
    if len(config.rootfs.diff_ids) != len(manifest.layers):
        raise DigestMismatch(
            f"{repository.name} has {len(manifest.layers)} layers, but its config lists {len(config.rootfs.diff_ids)}."
        )
    pieces: list[Piece] = []
    for layer, diff_id in zip(manifest.layers, config.rootfs.diff_ids, strict=True):
        if layer.media_type not in _LAYER_TYPES:
            raise UnsafeArchive(f"{repository.name} has a layer of the unsupported type {layer.media_type[:100]!r}.")
        pieces.append(TarPiece(blob=_blob(repository, layer), diff_id=parse_digest(diff_id), whiteouts=True))
    return tuple(pieces)


def _file_pieces(repository: Repository, manifest: ImageManifest, *, ollama: bool) -> tuple[Piece, ...]:
    """An artifact that is not an image: each layer is a file, named by its title annotation."""
    pieces: list[Piece] = []
    for layer in manifest.layers:
        if ollama:
            if layer.media_type == _OLLAMA_MODEL:
                pieces.append(FilePiece(blob=_blob(repository, layer), path="model.gguf"))
            continue
        title = layer.annotations.get(_TITLE, "")
        if not title:
            raise UnsafeArchive(
                f"{repository.name} has a layer of type {layer.media_type[:100]!r} without a file name."
            )
        pieces.append(FilePiece(blob=_blob(repository, layer), path=title))
    if not pieces:
        raise UnsafeArchive(f"{repository.name} contains no files.")
    return tuple(pieces)


def _blob(repository: Repository, descriptor: Descriptor) -> Blob:
    digest = parse_digest(descriptor.digest)
    if descriptor.size < 0:
        raise UnsafeArchive(f"{repository.name} has a layer of negative size.")
    return Blob(
        name=f"layer {descriptor.digest[7:19]}", digest=digest, size=descriptor.size, sources=repository.sources(digest)
    )
