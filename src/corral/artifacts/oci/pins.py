"""Pins a location to its current version without fetching it: one lookup for the whole fleet."""

from dataclasses import dataclass

from corral.artifacts.cancel import CancelToken
from corral.artifacts.digests import Digest
from corral.artifacts.errors import SignatureRefused
from corral.artifacts.oci.cosign import check_signed
from corral.artifacts.oci.image import read_platforms
from corral.artifacts.oci.registry import Registries
from corral.artifacts.references import HttpFile, OciImage, parse_reference
from corral.artifacts.signatures import SignaturePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    uri: str
    """The location with its tag replaced by the digest, if it has one."""
    digest: str = ""
    """Empty if the digest is not known before the download, or differs between platforms."""
    platforms: tuple[str, ...] | None = None
    """Platforms such as `linux/amd64`; None when unknown."""


def pin_location(
    registries: Registries,
    uri: str,
    sha256: Digest | None,
    cancel: CancelToken,
    signatures: SignaturePolicy | None = None,
) -> Pin:
    """Never reads this machine's disk: a path means something else on every node. With `signatures`, only an image
    signed by one of its keys is pinned."""
    reference = parse_reference(uri)
    if signatures is not None and not isinstance(reference, OciImage):
        raise SignatureRefused(f"{reference} must be signed, but only images of an OCI registry can be signed.")
    if isinstance(reference, HttpFile) and sha256 is not None:
        return Pin(uri=uri, digest=sha256)
    if not isinstance(reference, OciImage) or (reference.model_layer and signatures is None):
        return Pin(uri=uri)
    digest = registries.pin(reference, cancel)
    if signatures is not None:
        check_signed(registries, reference, digest, signatures, cancel)
    platforms = read_platforms(registries.repository(reference, cancel), digest)
    return Pin(uri=pinned_uri(uri, digest), digest=digest, platforms=platforms)


def pinned_uri(uri: str, digest: str) -> str:
    """The same image, from the same place or a mirror, by digest. Any other location is returned unchanged."""
    reference = parse_reference(uri)
    if not isinstance(reference, OciImage) or reference.model_layer:
        return uri
    image = OciImage(registry=reference.registry, repository=reference.repository, digest=Digest(digest))
    return f"oci://{image}"
