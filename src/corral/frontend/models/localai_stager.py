"""Brings a model's files to a LocalAI worker, which downloads none: this frontend downloads and sends them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from corral.bus.messages import FoundPath
from corral.core.models.config import ConfigFile
from corral.core.models.load_plan import WeightsPlan
from corral.core.nodes.node import Node
from corral.core.replicas.staging import FileTransfer
from corral.core.transfer import TransferProgress
from corral.frontend.models.weights_downloads import WeightsDownloads
from corral.frontend.models.weights_stager import AREA, FILES_AT_ONCE, UploadProgress
from corral.system.file_upload import upload
from corral.system.local_files import HashCache, LocalFile, list_files
from corral.system.worker_files import FileServer, look_up

OnProgress = Callable[[FileTransfer], None]


class LocalAiStager:
    """Files get LocalAI's keys, `models/<model>/<name>`: what a LocalAI frontend has sent is not sent again, and the
    worker can delete a model's files by its name."""

    def __init__(
        self, models_dir: Path, find: Callable[[str], Awaitable[FileServer]], downloads: WeightsDownloads
    ) -> None:
        self._models_dir, self._find, self._downloads = models_dir, find, downloads
        self._hashes = HashCache()

    async def stage(
        self, model: str, node: Node, plan: WeightsPlan, on_progress: OnProgress
    ) -> Mapping[str, FoundPath]:
        """Sends all files of the plan that are here or can be downloaded. Returns where the node has them, by name."""
        server, prefix = await self._find(node.id), f"{AREA}{model}/"
        files: dict[str, LocalFile] = {}
        for number, file in enumerate(plan.files, start=1):
            report = partial(_show_download, on_progress, number, len(plan.files))
            files |= {one.key: one for one in await self._get(file, prefix, report)}
        own = [name for name in plan.names if not plan.is_fetched(name)]
        files |= {one.key: one for one in await asyncio.to_thread(self._list, own, prefix)}
        await self._send(server, list(files.values()), hops=2 if plan.files else 1, on_progress=on_progress)
        names = dict.fromkeys((*plan.names, *(file.filename for file in plan.files)))
        return await self._locate(server, names, [prefix, AREA])

    async def find(self, node: Node, names: Iterable[str]) -> Mapping[str, FoundPath]:
        """Which of the names are in the node's models directory."""
        return await self._locate(await self._find(node.id), names, [AREA])

    async def keep_only(self, files: Iterable[ConfigFile]) -> None:
        """Removes downloads on this frontend's disk that no model lists any more."""
        await self._downloads.keep_only(files)

    async def _get(
        self, file: ConfigFile, prefix: str, on_progress: Callable[[TransferProgress], None]
    ) -> Sequence[LocalFile]:
        """From this frontend's models directory, if the very file is there, as it is after a move from LocalAI."""
        here = await asyncio.to_thread(self._list, [file.filename], prefix)
        wanted = file.sha256.lower().removeprefix("sha256:")
        if len(here) == 1 and wanted and await self._hashes.sha256(here[0].path) == wanted:
            return here
        return await self._downloads.fetch(file, prefix=prefix, on_progress=on_progress)

    async def _send(
        self, server: FileServer, files: Sequence[LocalFile], *, hops: int, on_progress: OnProgress
    ) -> None:
        if not files:
            return
        uploaded = UploadProgress(files, on_progress, hop=hops, hops=hops)
        limit = asyncio.Semaphore(FILES_AT_ONCE)

        async def send(file: LocalFile) -> None:
            async with limit:
                sha256 = await self._hashes.sha256(file.path)
                await upload(server, file, sha256=sha256, on_bytes=partial(uploaded.add, file))
            uploaded.end(file)

        try:
            async with asyncio.TaskGroup() as tasks:
                for file in files:
                    tasks.create_task(send(file))
        except ExceptionGroup as several:  # clients that wait for the load get the first cause
            raise several.exceptions[0] from several

    async def _locate(
        self, server: FileServer, names: Iterable[str], prefixes: Collection[str]
    ) -> dict[str, FoundPath]:
        found: dict[str, FoundPath] = {}
        for name in names:
            for prefix in prefixes:
                there = await look_up(server, f"{prefix}{name}")
                if there is not None:
                    found[name] = FoundPath(path=there.path, size=there.size)
                    break
        return found

    def _list(self, names: Sequence[str], prefix: str) -> list[LocalFile]:
        return [file for name in names for file in list_files(self._models_dir, name, prefix=prefix)]


def _show_download(on_progress: OnProgress, number: int, files: int, progress: TransferProgress) -> None:
    on_progress(
        FileTransfer(
            file_index=number,
            file_name=progress.file_name,
            files=files,
            bytes_done=progress.bytes_done or 0,
            bytes_total=progress.bytes_total or 0,
            hops=2,
        )
    )
