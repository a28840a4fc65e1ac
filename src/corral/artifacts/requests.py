"""What can be asked of the artifact library: a backend to install, and a file of a model."""

from dataclasses import dataclass

import msgspec

from corral.artifacts.content.manifest import Manifest
from corral.artifacts.digests import Digest
from corral.artifacts.settings import Peer
from corral.artifacts.signatures import SignaturePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRequest:
    """All that an install needs; a retry from this value alone equals the first attempt."""

    name: str
    uris: tuple[str, ...]
    """The source, then its mirrors, tried in order."""
    alias: str = ""
    gallery_url: str = ""
    version: str = ""
    sha256: Digest | None = None
    """Of a plain download, as the gallery promises it."""
    digest: Digest | None = None
    """A pin: any other version is refused."""
    manifest: Manifest | None = None
    signatures: SignaturePolicy | None = None
    """The image has to be signed. Holds for the source and for each of its mirrors."""
    peers: tuple[Peer, ...] = ()
    """Workers that may have its blobs already; asked first, and done without."""


class ModelFile(msgspec.Struct, frozen=True):
    filename: str
    uri: str
    sha256: str = ""
