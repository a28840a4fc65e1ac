"""Requests to the artifact library: a backend to install, and a file of a model."""

from dataclasses import dataclass

import msgspec

from corral.artifacts.content.manifest import Manifest, decode_manifest
from corral.artifacts.digests import Digest, parse_digest, sha256_digest
from corral.artifacts.settings import Peer
from corral.artifacts.signatures import SignaturePolicy
from corral.core.backends.build import BuildRef


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRequest:
    """Everything an install needs. A retry with the same value equals the first attempt."""

    build: BuildRef
    """With a digest, any other version is rejected."""
    gallery_url: str = ""
    signatures: SignaturePolicy | None = None
    """Signatures that the image requires, from the source and from each mirror."""
    peers: tuple[Peer, ...] = ()
    """Workers that may have the blobs; tried first, and skipped if they fail."""

    @property
    def digest(self) -> Digest | None:
        """Raises BadReference."""
        return parse_digest(self.build.digest) if self.build.digest else None

    @property
    def sha256(self) -> Digest | None:
        """Raises BadReference."""
        return sha256_digest(self.build.sha256.removeprefix("sha256:")) if self.build.sha256 else None

    @property
    def manifest(self) -> Manifest | None:
        """Raises BadManifest."""
        return decode_manifest(self.build.manifest) if self.build.manifest else None


class ModelFile(msgspec.Struct, frozen=True):
    filename: str
    uri: str
    sha256: str = ""
