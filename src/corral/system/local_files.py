"""Local files that are sent to other nodes: lists and digests."""

import asyncio
import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

HASH_BYTES = 4 << 20
NOTES = (".sha256", ".sha256.target")


@dataclass(frozen=True, slots=True)
class LocalFile:
    key: str
    """The receiver's key, for example `models/tiny.gguf`."""
    path: Path
    size: int
    changed_ms: int = 0
    """When the inode last changed, so that a file moved here with an old date counts as new."""


class HashCache:
    """SHA-256 of local files, computed once for each state of a file."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int, int], str]] = {}
        self._turns: dict[Path, asyncio.Lock] = {}

    async def sha256(self, path: Path) -> str:
        async with self._turns.setdefault(path, asyncio.Lock()):
            status = await asyncio.to_thread(path.stat)
            state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known = self._known.get(path)
            if known is None or known[0] != state:
                known = self._known[path] = (state, await asyncio.to_thread(_sha256, path))
            return known[1]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while part := file.read(HASH_BYTES):
            digest.update(part)
    return digest.hexdigest()


def _is_note(name: str, names: Collection[str]) -> bool:
    """Whether this is a checksum file that a file server wrote beside an upload. It is not part of a model."""
    return any(name.endswith(end) and name.removesuffix(end) in names for end in NOTES)


def list_files(root: Path, name: str, *, prefix: str) -> list[LocalFile]:
    """The file of that name, or every regular file below the directory. Links are not followed out of the root."""
    start = root / name
    home = root.resolve()
    if not start.resolve().is_relative_to(home):
        return []
    found = []
    for path in _walk(start):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            key = f"{prefix}{path.relative_to(root)}"
            found.append(LocalFile(key, path, status.st_size, status.st_ctime_ns // 1_000_000))
    return found


def remove_others(directory: Path, kept: Collection[str]) -> int:
    """Removes the directories in this one that have other names. Returns their number."""
    gone = [path for path in directory.iterdir() if path.name not in kept] if directory.is_dir() else []
    for path in gone:
        shutil.rmtree(path)
    return len(gone)


def _walk(start: Path) -> Iterator[Path]:
    if start.is_dir() and not start.is_symlink():
        for directory, _, names in os.walk(start):
            yield from (Path(directory, name) for name in sorted(names) if not _is_note(name, names))
    elif start.exists():
        yield start
