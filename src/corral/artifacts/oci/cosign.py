"""Cosign signatures. They are stored beside the image, under the tag `sha256-<digest>.sig`, one layer each."""

from collections.abc import Iterator

import msgspec

from corral.artifacts.cancel import CancelToken
from corral.artifacts.digests import Digest, digest_of, hex_of, parse_digest
from corral.artifacts.errors import BadReference, SignatureRefused, SourceRejected
from corral.artifacts.oci.image import ImageManifest
from corral.artifacts.oci.registry import Registries
from corral.artifacts.references import OciImage
from corral.artifacts.signatures import SignaturePolicy, check_policy, pick_signer
from corral.system.json import decode_json

PAYLOAD_BYTES = 64 * 1024
MAX_SIGNATURES = 64
_PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
_SIGNATURE = "dev.cosignproject.cosign/signature"


def check_signed(
    registries: Registries, image: OciImage, digest: Digest, policy: SignaturePolicy, cancel: CancelToken
) -> str:
    """Returns the fingerprint of the key that signed the image. Raises unless one of the policy's keys did."""
    keys = check_policy(policy, f"The source of {image}")
    wrong = 0
    for payload, signature in _signatures(registries, image, digest, cancel):
        signer = pick_signer(payload, signature, digest, keys)
        if signer is not None:
            return signer.fingerprint
        wrong += 1
    if wrong:
        raise SignatureRefused(
            f"{image} ({digest}) has {wrong} cosign signature{'s' if wrong > 1 else ''}, but none for this"
            " image from a trusted key. Nothing was fetched. Check the key, or whether the image was replaced."
        )
    raise SignatureRefused(
        f"{image} ({digest}) must be signed but has no cosign signature at {_tag(digest)}. Nothing was"
        " fetched. Sign it with `cosign sign --key` (in the format with a `.sig` tag), or remove the requirement."
    )


def _tag(digest: Digest) -> str:
    return f"{digest.partition(':')[0]}-{hex_of(digest)}.sig"


def _signatures(
    registries: Registries, image: OciImage, digest: Digest, cancel: CancelToken
) -> Iterator[tuple[bytes, str]]:
    """Payload and signature of each layer. A damaged one counts as a signature that does not match."""
    try:
        content = registries.read_tagged(image, _tag(digest), cancel)
    except SourceRejected as error:
        if error.status == 404:
            return
        raise
    try:
        layers = decode_json(content, ImageManifest).layers
    except msgspec.DecodeError as error:
        raise SignatureRefused(f"The signatures of {image} cannot be read: {error}.") from error
    if len(layers) > MAX_SIGNATURES:
        raise SignatureRefused(f"{image} has {len(layers)} signatures; the limit is {MAX_SIGNATURES}.")
    repository = registries.repository(image, cancel)
    for layer in layers:
        signature = layer.annotations.get(_SIGNATURE, "")
        if layer.media_type != _PAYLOAD or not signature:
            continue
        try:
            named = parse_digest(layer.digest)
        except BadReference:
            continue
        payload = repository.read_small(named, PAYLOAD_BYTES)
        yield (payload, signature) if digest_of(payload) == named else (b"", signature)
