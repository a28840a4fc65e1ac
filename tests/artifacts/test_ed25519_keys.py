"""Ed25519 keys of a signature policy: the published examples, OpenSSL's signatures, and everything that must fail."""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from corral.artifacts.errors import PolicyRefused
from corral.artifacts.signatures import PublicKey, SignaturePolicy, check_policy

DER_PREFIX = bytes.fromhex("302a300506032b6570032100")

# RFC 8032, 7.1: the first two examples
EXAMPLES = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        b"",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe"
        "24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        b"\x72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302a"
        "eeb00d291612bb0c00",
    ),
]
RAW_KEY = bytes.fromhex(EXAMPLES[1][0])


def read_key(raw: bytes) -> PublicKey:
    body = base64.b64encode(DER_PREFIX + raw).decode()
    pem = f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"
    (key,) = check_policy(SignaturePolicy(public_keys=(pem,)), "The gallery")
    return key


KEY = read_key(RAW_KEY)
SIGNATURE = bytes.fromhex(EXAMPLES[1][2])
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize(("key", "message", "signature"), EXAMPLES)
def test_the_published_examples_hold(key: str, message: bytes, signature: str) -> None:
    assert read_key(bytes.fromhex(key)).has_signed(message, bytes.fromhex(signature))


def scalar_beyond_the_order() -> bytes:
    scalar = int.from_bytes(SIGNATURE[32:], "little") + ORDER
    return SIGNATURE[:32] + scalar.to_bytes(32, "little")


@pytest.mark.parametrize(
    ("message", "signature"),
    [
        (b"\x73", SIGNATURE),
        (b"", SIGNATURE),
        (b"\x72", bytes.fromhex(EXAMPLES[0][2])),
        (b"\x72", b""),
        (b"\x72", SIGNATURE[:-1]),
        (b"\x72", SIGNATURE + b"\0"),
        (b"\x72", bytes(64)),
        (b"\x72", b"\xff" * 64),
        (b"\x72", scalar_beyond_the_order()),
        *((b"\x72", bytes([*SIGNATURE[:at], SIGNATURE[at] ^ 1, *SIGNATURE[at + 1 :]])) for at in (0, 31, 32, 63)),
    ],
)
def test_nothing_else_counts_as_signed(message: bytes, signature: bytes) -> None:
    assert not KEY.has_signed(message, signature)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        RAW_KEY[:-1],
        RAW_KEY + b"\0",
        (2).to_bytes(32, "little"),
        (2**255 - 19).to_bytes(32, "little"),
        (1 | 1 << 255).to_bytes(32, "little"),
        (1).to_bytes(32, "little"),
        bytes(32),
    ],
    ids=["empty", "short", "long", "no-point", "not-reduced", "minus-zero", "neutral-point", "small-order"],
)
def test_a_damaged_key_is_refused(raw: bytes) -> None:
    with pytest.raises(PolicyRefused, match="damaged key"):
        read_key(raw)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl missing")
@pytest.mark.processes
def test_what_openssl_signs_is_signed(tmp_path: Path) -> None:
    key, message = tmp_path / "key.pem", tmp_path / "message"
    message.write_bytes(b"corral")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, capture_output=True)
    command: list[Path | str] = ["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"]
    raw = subprocess.run(command, check=True, capture_output=True).stdout[-32:]
    command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", message]
    signature = subprocess.run(command, check=True, capture_output=True).stdout
    assert read_key(raw).has_signed(b"corral", signature)
    assert not read_key(raw).has_signed(b"corral!", signature)
