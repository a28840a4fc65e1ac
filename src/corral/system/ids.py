"""Random values: ids, secrets and jitter."""

import random
import secrets
import uuid
from typing import Protocol


class Ids(Protocol):
    def uuid(self) -> str:
        """A lower-case UUIDv4."""
        ...

    def token(self) -> str:
        """A secret of 256 bits, URL-safe. A plain SHA-256 of it may be stored."""
        ...

    def seed(self) -> bytes:
        """32 bytes for a signing key."""
        ...

    def draw(self) -> float:
        """Uniform in 0..1, for jitter. Not secret."""
        ...


class SystemIds:
    def __init__(self) -> None:
        # The method itself, for speed: the gateway draws for every request.
        self.draw = random.Random().random  # noqa: S311  not a secret

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def token(self) -> str:
        return secrets.token_urlsafe(32)

    def seed(self) -> bytes:
        return secrets.token_bytes(32)
