"""Artifacts that are already on this machine: directories, archives, OCI layouts and saved images."""

import os
from dataclasses import replace
from pathlib import Path

import msgspec

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob, BlobSource, FileSource
from corral.artifacts.content.pieces import FilePiece, Piece, ResolvedArtifact, TarPiece, TreePiece, ZipPiece
from corral.artifacts.digests import Digest, digest_of, hex_of, parse_digest
from corral.artifacts.disk.staging import remove_tree
from corral.artifacts.errors import BadReference, UnsafeArchive
from corral.artifacts.oci.image import (
    INDEX_TYPES,
    MANIFEST_BYTES,
    MANIFEST_TYPES,
    ImageIndex,
    OciPlatform,
    Repository,
    resolve_image,
)
from corral.artifacts.references import OciLayout
from corral.artifacts.unpack.budget import UnpackBudget
from corral.artifacts.unpack.inflate import classify_compression, inflate
from corral.artifacts.unpack.local_tree import measure_tree
from corral.artifacts.unpack.tar import unpack_tar
from corral.artifacts.unpack.tree import DIRECTORY_FLAGS, TreeWriter
from corral.system.json import decode_json

_REF_NAME = "org.opencontainers.image.ref.name"


def archive_piece(name: str, blob: Blob, head: bytes = b"") -> Piece:
    """The kind of a file, by its first bytes if available, else by its name."""
    lower = name.lower()
    if head.startswith(b"PK\x03\x04") or (not head and lower.endswith((".zip", ".whl"))):
        return ZipPiece(blob=blob)
    packed = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tzst", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")
    if lower.endswith(packed) or head[257:262] == b"ustar":
        return TarPiece(blob=blob)
    return FilePiece(blob=blob, path=Path(name).name or "file")


def resolve_path(path: Path, platform: OciPlatform, cancel: CancelToken, depth: int) -> ResolvedArtifact:
    if (path / "oci-layout").is_file():
        return resolve_layout(OciLayout(path=path), platform)
    if path.is_dir():
        digest, size = measure_tree(path, cancel, depth)
        piece = TreePiece(path=path, digest=digest, size=size)
        return ResolvedArtifact(digest=digest, source=f"file://{path}", pieces=(piece,), verified_by="tree digest")
    if not path.is_file():
        raise BadReference(f"{path} does not exist.")
    with path.open("rb") as file:
        head = file.read(512)
    status = path.stat()
    blob = Blob(
        name=path.name,
        digest=None,
        size=status.st_size,
        sources=(FileSource(path),),
        identity=f"{path}\0{status.st_mtime_ns}\0{status.st_size}",
    )
    return ResolvedArtifact(
        digest=None, source=f"file://{path}", pieces=(archive_piece(path.name, blob, head),), verified_by="local file"
    )


def _layout_repository(path: Path) -> Repository:
    def blob_path(digest: Digest) -> Path:
        return path / "blobs" / digest.partition(":")[0] / hex_of(digest)

    def read(digest: Digest, limit: int) -> bytes:
        file = blob_path(digest)
        if not file.is_file():
            raise BadReference(f"{path} does not contain the blob {digest}.")
        if file.stat().st_size > limit:
            raise UnsafeArchive(f"{digest} in {path} is larger than the {limit} bytes allowed for such a document.")
        return file.read_bytes()

    def sources(digest: Digest) -> tuple[BlobSource, ...]:
        return (FileSource(blob_path(digest)),)

    return Repository(
        name=str(path),
        read_manifest=lambda digest: (read(digest, MANIFEST_BYTES), ""),
        read_small=read,
        sources=sources,
    )


def resolve_layout(reference: OciLayout, platform: OciPlatform) -> ResolvedArtifact:
    file = reference.path / "index.json"
    if not file.is_file() or file.stat().st_size > MANIFEST_BYTES:
        raise BadReference(f"{reference.path} is not an OCI layout: it has no usable index.json.")
    content = file.read_bytes()
    try:
        index = decode_json(content, ImageIndex)
    except msgspec.DecodeError as error:
        raise UnsafeArchive(f"The index of {reference.path} cannot be read: {error}.") from error
    images = [entry for entry in index.manifests if entry.media_type in MANIFEST_TYPES | INDEX_TYPES]
    if reference.tag:
        images = [entry for entry in images if entry.annotations.get(_REF_NAME) == reference.tag]
    if not images:
        raise BadReference(f"{reference.path} contains no image{f' {reference.tag}' if reference.tag else ''}.")
    repository = _layout_repository(reference.path)
    if len(images) == 1:
        digest = parse_digest(images[0].digest)
        return resolve_image(repository, digest, platform, source=f"{reference}@{digest}")
    from_index = Repository(
        name=repository.name,
        read_manifest=lambda digest: (
            (content, "application/vnd.oci.image.index.v1+json")
            if digest == digest_of(content)
            else repository.read_manifest(digest)
        ),
        read_small=repository.read_small,
        sources=repository.sources,
    )
    return resolve_image(from_index, digest_of(content), platform, source=str(reference))


class _SavedImage(msgspec.Struct, rename="pascal"):
    config: str
    layers: list[str]


class _SavedConfig(msgspec.Struct):
    class RootFs(msgspec.Struct):
        diff_ids: list[str] = []

    rootfs: RootFs
    os: str = ""
    architecture: str = ""


def resolve_archive(
    path: Path, unpacked: Path, platform: OciPlatform, budget: UnpackBudget, cancel: CancelToken
) -> ResolvedArtifact:
    """A saved image. It is unpacked first, because its members are in any order, and a layer may come before the
    document that names it."""
    if not path.is_file():
        raise BadReference(f"{path} does not exist.")
    try:
        _unpack_archive(path, unpacked, budget, cancel)
        if (unpacked / "oci-layout").is_file():
            found = resolve_layout(OciLayout(path=unpacked), platform)
        else:
            found = _saved_image(path, unpacked, platform)
        return replace(found, source=f"ocifile://{path}@{found.digest}", scratch=unpacked)
    except BaseException:  # the caller gets nothing to remove it by
        remove_tree(unpacked)
        raise


def _unpack_archive(path: Path, unpacked: Path, budget: UnpackBudget, cancel: CancelToken) -> None:
    unpacked.mkdir(parents=True)
    root = os.open(unpacked, DIRECTORY_FLAGS)
    tree = TreeWriter(root, budget, cancel)
    try:
        with path.open("rb") as file:
            head = file.read(16)
            file.seek(0)
            chunks = inflate(iter(lambda: file.read(1 << 18), b""), classify_compression(head))
            unpack_tar(chunks, tree, depth=budget.limits.depth, whiteouts=False)
        tree.finish()
    finally:
        tree.close()
        os.close(root)


def _saved_image(path: Path, unpacked: Path, platform: OciPlatform) -> ResolvedArtifact:
    try:
        images = decode_json(_document(path, unpacked, "manifest.json"), list[_SavedImage])
        image = images[0]
        config_content = _document(path, unpacked, image.config)
        config = decode_json(config_content, _SavedConfig)
    except (OSError, IndexError, msgspec.DecodeError) as error:
        raise UnsafeArchive(f"{path} is not a saved image.") from error
    if config.os and (config.os, config.architecture) != (platform.os, platform.architecture):
        raise BadReference(f"{path} is built for {config.os}/{config.architecture}, not for {platform}.")
    if len(config.rootfs.diff_ids) != len(image.layers):
        count = len(config.rootfs.diff_ids)
        raise UnsafeArchive(f"{path} has {len(image.layers)} layers, but its config lists {count}.")
    pieces: list[Piece] = []
    for layer, diff_id in zip(image.layers, config.rootfs.diff_ids, strict=True):
        file = _held(path, unpacked, layer)
        digest = parse_digest(diff_id)
        blob = Blob(name=layer, digest=digest, size=file.stat().st_size, sources=(FileSource(file),))
        pieces.append(TarPiece(blob=blob, diff_id=digest, whiteouts=True))
    return ResolvedArtifact(
        digest=digest_of(config_content), source=f"ocifile://{path}", pieces=tuple(pieces), verified_by="config digest"
    )


def _document(archive: Path, unpacked: Path, name: str) -> bytes:
    file = _held(archive, unpacked, name)
    if file.stat().st_size > MANIFEST_BYTES:
        raise UnsafeArchive(f"{name[:120]!a} in {archive} is larger than the {MANIFEST_BYTES} bytes allowed.")
    return file.read_bytes()


def _held(archive: Path, unpacked: Path, name: str) -> Path:
    """A file inside the unpacked archive. Its name comes from the archive and may be `/dev/zero`."""
    try:
        file = (unpacked / name).resolve()
        if file.is_relative_to(unpacked.resolve()) and file.is_file():
            return file
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a circle of links
        raise UnsafeArchive(f"{archive} refers to an invalid file: {error}.") from error
    raise UnsafeArchive(f"{archive} refers to {name[:120]!a}, which it does not contain.")
