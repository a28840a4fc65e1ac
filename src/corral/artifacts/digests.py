"""Digests, `sha256:<64 hex>`: how this package identifies bytes."""

import hashlib
import re
from typing import NewType, Protocol

from corral.artifacts.errors import BadReference

Digest = NewType("Digest", str)

_SHAPES = {"sha256": 64, "sha512": 128}
_HEX = re.compile(r"[0-9a-f]+\Z")


class Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


def parse_digest(text: str) -> Digest:
    algorithm, _, digits = text.partition(":")
    digits = digits.lower()
    if _SHAPES.get(algorithm) != len(digits) or not _HEX.match(digits):
        raise BadReference(f"{text[:100]!r} is not a digest; the form is sha256: and 64 hexadecimal digits.")
    return Digest(f"{algorithm}:{digits}")


def sha256_digest(hex_digits: str) -> Digest:
    return parse_digest(f"sha256:{hex_digits.strip()}")


def hex_of(digest: Digest) -> str:
    return digest.partition(":")[2]


def new_hash(digest: Digest | None) -> Hash:
    return hashlib.sha512() if digest is not None and digest.startswith("sha512:") else hashlib.sha256()


def digest_of(data: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(data).hexdigest()}")


def finish(expected: Digest | None, running: Hash) -> Digest:
    algorithm = "sha256" if expected is None else expected.partition(":")[0]
    return Digest(f"{algorithm}:{running.hexdigest()}")
