"""Secrets on disk: one file each, readable by its owner only, made once and whole."""

import os
from collections.abc import Callable
from pathlib import Path

from corral.core.errors import Unavailable


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, whatever happens in between."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_secret(path: Path) -> str | None:
    """None when there is none: no file, or nothing in it."""
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"cannot read the secret in {path}: {error.strerror}") from error


def ensure_secret(path: Path, make: Callable[[], str]) -> str:
    """The secret in `path`; made and kept there the first time."""
    secret = read_secret(path)
    if secret is None:
        secret = make()
        try:
            write_private(path, secret + "\n")
        except OSError as error:
            raise Unavailable(f"cannot keep a secret in {path}: {error.strerror}. Check the data directory.") from error
    return secret
