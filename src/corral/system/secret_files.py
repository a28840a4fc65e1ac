"""Secrets on disk: one file each, readable only by its owner, created once and written atomically."""

import stat
from collections.abc import Callable
from pathlib import Path

import structlog

from corral.core.errors import Unavailable
from corral.system.disk import Disk

log = structlog.get_logger()

PRIVATE = ("keys", "artifacts")
"""The private directories inside a data directory."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_secret(disk: Disk, path: Path) -> str | None:
    """The secret in the file; None when the file is absent or empty."""
    try:
        return (disk.read(path) or b"").decode(errors="replace").strip() or None
    except OSError as error:
        raise Unavailable(f"cannot read the secret in {path}: {error.strerror}") from error


def write_secret(disk: Disk, path: Path, secret: str) -> None:
    try:
        disk.write(path, f"{secret}\n".encode())
    except OSError as error:
        raise Unavailable(f"cannot write the secret {path}: {error.strerror}. Check the data directory.") from error


def ensure_secret(disk: Disk, path: Path, make: Callable[[], str]) -> str:
    """The secret in `path`; created there the first time."""
    secret = read_secret(disk, path)
    if secret is None:
        secret = make()
        write_secret(disk, path, secret)
    return secret


def keep_to_owner(path: Path) -> None:
    """Removes other users' permissions. Files that are absent or belong to another user are left alone."""
    try:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & OTHERS and not path.is_symlink():
            path.chmod(mode & ~OTHERS)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("data.readable_by_others", path=str(path), error=error.strerror)


def keep_data_to_owner(data_dir: Path) -> None:
    """Protects the private directories. The data directory itself may be open to others by an administrator's choice,
    which is logged."""
    for name in PRIVATE:
        keep_to_owner(data_dir / name)
    try:
        mode = stat.S_IMODE(data_dir.stat().st_mode)
    except FileNotFoundError:
        return
    if mode & OTHERS:
        log.warning("data.readable_by_others", path=str(data_dir), mode=f"{mode:o}", help=f"chmod 700 {data_dir}")
