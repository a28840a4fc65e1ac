"""The signatures that a gallery requires, and the check of an image's signatures against them."""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from corral.artifacts.digests import Digest, digest_of
from corral.artifacts.errors import PolicyRefused
from corral.formats import p256
from corral.system.json import decode_json

SUPPORTED = (
    "Corral checks cosign signatures made with a key (ECDSA P-256 or Ed25519), given as `public_key` or `public_keys`"
    " in PEM"
)
_PEM_HEAD, _PEM_TAIL = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_P256_INFO = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")
_ED25519_INFO = bytes.fromhex("302a300506032b6570032100")
_ED25519_BYTES = 32
_PAYLOAD_TYPE = "cosign container image signature"


class SignaturePolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Images are installed only with a signature by one of these keys."""

    public_keys: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    """Requirements that cannot be checked, such as keyless identities. They are rejected, never ignored."""


def read_policy(verification: Any) -> SignaturePolicy | None:
    """The policy in a gallery's `verification`. None when it requires nothing."""
    if not verification:
        return None
    if not isinstance(verification, dict):
        return SignaturePolicy(unsupported=("a verification that is not a map",))
    asked = {key: value for key, value in verification.items() if value not in (None, "", [])}
    single, several = asked.pop("public_key", None), asked.pop("public_keys", [])
    keys = [*([single] if single else []), *(several if isinstance(several, list) else [several])]
    if any(not isinstance(key, str) for key in keys):
        asked["public_keys"] = "not text"
    return SignaturePolicy(
        public_keys=tuple(key for key in keys if isinstance(key, str)), unsupported=tuple(sorted(map(str, asked)))
    )


@dataclass(frozen=True, slots=True)
class PublicKey:
    der: bytes
    has_signed: Callable[[bytes, bytes], bool]
    """Whether the second argument is this key's signature of the first."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key's DER form, as people compare keys."""
        return digest_of(self.der)


def check_policy(policy: SignaturePolicy, who: str) -> list[PublicKey]:
    """The policy's keys. Rejects a policy that cannot be enforced completely."""
    if policy.unsupported:
        raise PolicyRefused(
            f"{who} requires signatures by {', '.join(policy.unsupported)}, which Corral cannot check, so no"
            f" image is installed. {SUPPORTED}; keyless signatures (Fulcio, Rekor) are not supported."
        )
    if not policy.public_keys:
        raise PolicyRefused(f"{who} requires signed images but names no key. {SUPPORTED}.")
    return [_read_key(pem, who) for pem in policy.public_keys]


def _read_key(pem: str, who: str) -> PublicKey:
    head, found, rest = pem.partition(_PEM_HEAD)
    body, ended, _ = rest.partition(_PEM_TAIL)
    if not found or not ended or head.strip():
        raise PolicyRefused(f"{who} names a key that is not a PEM public key (`{_PEM_HEAD}`).")
    try:
        der = base64.b64decode("".join(body.split()), validate=True)
        if der.startswith(_P256_INFO):
            return _p256_key(der)
        if der.startswith(_ED25519_INFO):
            return _ed25519_key(der)
    except (binascii.Error, ValueError) as error:
        raise PolicyRefused(f"{who} names a damaged key: {error}.") from error
    raise PolicyRefused(f"{who} names a key of an unsupported type. {SUPPORTED}.")


def _p256_key(der: bytes) -> PublicKey:
    point = p256.read_point(der.removeprefix(_P256_INFO))

    def has_signed(payload: bytes, signature: bytes) -> bool:
        try:
            return p256.is_signed_by(point, payload, p256.read_signature(signature))
        except ValueError:
            return False

    return PublicKey(der, has_signed)


def _ed25519_key(der: bytes) -> PublicKey:
    # Few galleries require signatures, and libsodium takes a while to load.
    from nacl.bindings import crypto_core_ed25519_is_valid_point
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    raw = der.removeprefix(_ED25519_INFO)
    if len(raw) != _ED25519_BYTES or not crypto_core_ed25519_is_valid_point(raw):
        raise ValueError("it is not a valid Ed25519 point")
    key = VerifyKey(raw)

    def has_signed(payload: bytes, signature: bytes) -> bool:
        try:
            key.verify(payload, signature)
        except (BadSignatureError, ValueError):
            return False
        return True

    return PublicKey(der, has_signed)


class _Image(msgspec.Struct, rename="kebab"):
    docker_manifest_digest: str


class _Critical(msgspec.Struct):
    image: _Image
    type: str


class _Payload(msgspec.Struct):
    critical: _Critical


def pick_signer(payload: bytes, signature: str, digest: Digest, keys: list[PublicKey]) -> PublicKey | None:
    """The key that signed this payload, if the payload names the image `digest`."""
    try:
        raw = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return None
    signer = next((key for key in keys if key.has_signed(payload, raw)), None)
    if signer is None:
        return None
    try:
        critical = decode_json(payload, _Payload).critical
    except msgspec.DecodeError:
        return None
    return signer if critical.type == _PAYLOAD_TYPE and critical.image.docker_manifest_digest == digest else None
