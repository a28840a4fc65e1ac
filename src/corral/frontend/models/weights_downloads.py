"""Downloads weights to this frontend's disk, for LocalAI workers, which download none."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from corral.artifacts.install.gc import Freed
from corral.artifacts.install.weights import PlacedFile
from corral.artifacts.progress import OnProgress
from corral.artifacts.requests import ModelFile
from corral.core.models.config import ConfigFile
from corral.core.transfer import TransferProgress
from corral.system.local_files import LocalFile, list_files, remove_others

log = structlog.get_logger()

SPARE_S = 3600.0
"""Other downloads of this frontend may have fetched blobs that are not placed yet."""


class FetchFiles(Protocol):
    async def install_files(
        self, files: Sequence[ModelFile], *, target_dir: Path | None = None, on_progress: OnProgress | None = None
    ) -> list[PlacedFile]: ...

    async def collect_garbage(self, *, spare_s: float = 0.0) -> Freed: ...


class WeightsDownloads:
    """One directory for each source, so that files with equal names are not mixed up."""

    def __init__(self, artifacts: FetchFiles, directory: Path) -> None:
        self._artifacts, self._directory = artifacts, directory
        self._turns: dict[str, asyncio.Lock] = {}

    async def fetch(
        self, file: ConfigFile, *, prefix: str, on_progress: Callable[[TransferProgress], None]
    ) -> list[LocalFile]:
        """The file, or the files of a directory, downloaded unless they are here. Keys begin with `prefix`."""
        source = _source_of(file)
        async with self._turns.setdefault(source, asyncio.Lock()):
            root = self._directory / source
            found = await asyncio.to_thread(list_files, root, file.filename, prefix=prefix)
            if not found:
                wanted = ModelFile(file.filename, file.uri, file.sha256)
                await self._artifacts.install_files([wanted], target_dir=root, on_progress=on_progress)
                found = await asyncio.to_thread(list_files, root, file.filename, prefix=prefix)
            return found

    async def keep_only(self, files: Iterable[ConfigFile]) -> None:
        """Removes the files of sources that no model lists any more."""
        removed = await asyncio.to_thread(remove_others, self._directory, {_source_of(file) for file in files})
        if removed:
            await self._artifacts.collect_garbage(spare_s=SPARE_S)
            log.info("downloads.removed", sources=removed)


def _source_of(file: ConfigFile) -> str:
    text = f"{file.uri}\0{file.sha256.lower()}\0{file.filename}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
