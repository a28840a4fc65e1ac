"""From a location to the version it means now, without fetching it: asked once, for the whole fleet."""

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
    """The location with its tag replaced by the digest, where it has one."""
    digest: str = ""
    """Empty where the version has no name before its bytes have arrived, or has another one on each platform."""
    platforms: tuple[str, ...] | None = None
    """`linux/amd64` ...: where it runs; None when the location does not tell."""


def pin_location(
    registries: Registries,
    uri: str,
    sha256: Digest | None,
    cancel: CancelToken,
    signatures: SignaturePolicy | None = None,
) -> Pin:
    """Never looks at this machine's own disk: a path means something else on every node. With `signatures`, only an
    image that one of its keys signed gets a pin."""
    reference = parse_reference(uri)
    if signatures is not None and not isinstance(reference, OciImage):
        raise SignatureRefused(f"{reference} has to be signed, and only images of an OCI registry can be.")
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
    """The same image at the same place or a mirror, by digest. Anything else is left as it is."""
    reference = parse_reference(uri)
    if not isinstance(reference, OciImage) or reference.model_layer:
        return uri
    image = OciImage(registry=reference.registry, repository=reference.repository, digest=Digest(digest))
    return f"oci://{image}"
