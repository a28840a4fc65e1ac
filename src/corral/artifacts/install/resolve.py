"""Resolves a reference of any kind to the pieces of its artifact."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob
from corral.artifacts.content.pieces import ResolvedArtifact, TreePiece, with_digest
from corral.artifacts.digests import Digest
from corral.artifacts.disk.staging import Staging
from corral.artifacts.errors import BadReference, PolicyRefused, SignatureRefused
from corral.artifacts.net.client import Outbound
from corral.artifacts.oci.cosign import check_signed
from corral.artifacts.oci.image import OciPlatform, resolve_image
from corral.artifacts.oci.registry import Registries
from corral.artifacts.pypi.environments import resolve_environment
from corral.artifacts.pypi.index import PypiIndex
from corral.artifacts.pypi.source_builds import SourceBuilds
from corral.artifacts.references import (
    HttpFile,
    HuggingFace,
    LocalPath,
    OciArchive,
    OciImage,
    OciLayout,
    PypiFile,
    PypiPackages,
    Reference,
    S3Object,
)
from corral.artifacts.settings import ArtifactSettings, UnpackLimits
from corral.artifacts.signatures import SignaturePolicy
from corral.artifacts.sources.http import describe_download
from corral.artifacts.sources.huggingface import HuggingFaceHub
from corral.artifacts.sources.local import archive_piece, resolve_archive, resolve_layout, resolve_path
from corral.artifacts.sources.s3 import S3Client
from corral.artifacts.unpack.budget import UnpackBudget
from corral.system import Clock

FetchDocument = Callable[[Blob, CancelToken], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResolver:
    settings: ArtifactSettings
    outbound: Outbound
    registries: Registries
    staging: Staging
    builds: SourceBuilds
    clock: Clock
    platform: OciPlatform

    def resolve(
        self,
        reference: Reference,
        cancel: CancelToken,
        *,
        sha256: Digest | None = None,
        signatures: SignaturePolicy | None = None,
        fetch: FetchDocument | None = None,
    ) -> ResolvedArtifact:
        """`sha256` is the gallery's digest of a plain file; images and packages have their own digests. With
        `signatures`, only an image signed by one of its keys is resolved. `fetch` gets the documents of an image;
        without it, they are read from its registry."""
        if signatures is None:
            return self._resolve(reference, cancel, sha256, fetch)
        if not isinstance(reference, OciImage):
            raise SignatureRefused(f"{reference} must be signed, but only images of an OCI registry can be signed.")
        digest = self.registries.pin(reference, cancel)
        signer = check_signed(self.registries, reference, digest, signatures, cancel)
        # From here on it is that digest which is read: the tag may move.
        found = self._resolve(replace(reference, digest=digest), cancel, sha256, fetch)
        return replace(found, verified_by=f"{found.verified_by}, cosign key {signer}")

    def _resolve(
        self, reference: Reference, cancel: CancelToken, sha256: Digest | None, fetch: FetchDocument | None
    ) -> ResolvedArtifact:
        match reference:
            case OciImage():
                return self._image(reference, cancel, fetch)
            case OciLayout():
                return resolve_layout(reference, self.platform)
            case OciArchive(path=path):
                budget = UnpackBudget(UnpackLimits(), self.clock, disk_bytes=self.settings.unpack.total_bytes)
                return resolve_archive(path, self.staging.new_path(), self.platform, budget, cancel)
            case LocalPath(path=path):
                if self.settings.data_dir.resolve().is_relative_to(path.resolve()):
                    raise BadReference(
                        f"{path} contains {self.settings.data_dir}, the target of the copy. Use another directory."
                    )
                found = resolve_path(path, self.platform, cancel, self.settings.unpack.depth)
                return self._pinned(found, sha256)
            case HttpFile(url=url):
                blob = describe_download(self.outbound, url, sha256, cancel)
                return self._single(blob, str(reference))
            case HuggingFace():
                return self._hub().resolve(reference, cancel, sha256)
            case S3Object():
                return S3Client(self.outbound, self.settings.s3, self.clock).resolve(reference, cancel, sha256)
            case PypiPackages(requirements=requirements, index=index):
                return resolve_environment(self._pypi(index), requirements, cancel)
            case PypiFile():
                return self._pypi().resolve_file(reference, cancel)
            case _:
                assert_never(reference)

    def _hub(self) -> HuggingFaceHub:
        return HuggingFaceHub(self.outbound, self.settings.hugging_face)

    def _pypi(self, additional_url: str = "") -> PypiIndex:
        return PypiIndex(self.outbound, self.settings.pypi, self.builds, self.staging, additional_url=additional_url)

    def _image(self, image: OciImage, cancel: CancelToken, fetch: FetchDocument | None) -> ResolvedArtifact:
        digest = self.registries.pin(image, cancel)
        repository = self.registries.repository(image, cancel)
        source = f"{image.registry}/{image.repository}@{digest}"
        documents: list[Digest] = []

        def fetch_and_note(blob: Blob) -> bytes:
            assert blob.digest is not None, "documents of images are read by digest"
            documents.append(blob.digest)
            return fetch(blob, cancel) if fetch is not None else b""

        if fetch is not None:
            repository = repository.fetching_documents(fetch_and_note)
        found = resolve_image(repository, digest, self.platform, source=source, ollama=image.model_layer)
        return replace(found, documents=tuple(documents))

    def _single(self, blob: Blob, source: str) -> ResolvedArtifact:
        if blob.digest is None and self.settings.require_digest:
            raise PolicyRefused(f"{source} has no digest, and unpinned downloads are disabled.")
        piece = archive_piece(blob.name, blob)
        return ResolvedArtifact(
            digest=blob.digest,
            source=source,
            pieces=(piece,),
            verified_by="sha256 from gallery" if blob.digest else "first download",
        )

    def _pinned(self, found: ResolvedArtifact, sha256: Digest | None) -> ResolvedArtifact:
        piece = found.pieces[0]
        if sha256 is None or found.digest is not None or isinstance(piece, TreePiece):
            return found
        return replace(found, digest=sha256, pieces=(with_digest(piece, sha256),), verified_by="sha256 from gallery")
