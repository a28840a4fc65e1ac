"""Secrets on disk: one file each, readable by its owner only, made once and whole."""

from collections.abc import Callable
from pathlib import Path

from corral.core.errors import Unavailable
from corral.system.disk import Disk


def read_secret(disk: Disk, path: Path) -> str | None:
    """None when there is none: no file, or nothing in it."""
    try:
        return (disk.read(path) or b"").decode(errors="replace").strip() or None
    except OSError as error:
        raise Unavailable(f"cannot read the secret in {path}: {error.strerror}") from error


def write_secret(disk: Disk, path: Path, secret: str) -> None:
    try:
        disk.write(path, f"{secret}\n".encode())
    except OSError as error:
        raise Unavailable(f"cannot keep a secret in {path}: {error.strerror}. Check the data directory.") from error


def ensure_secret(disk: Disk, path: Path, make: Callable[[], str]) -> str:
    """The secret in `path`; made and kept there the first time."""
    secret = read_secret(disk, path)
    if secret is None:
        secret = make()
        write_secret(disk, path, secret)
    return secret
