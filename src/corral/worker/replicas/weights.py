"""The weights on this machine: download, lookup and deletion for frontends."""

import asyncio
import posixpath
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from corral.artifacts import CancelToken
from corral.artifacts.install.weights import PlacedFile
from corral.artifacts.requests import ModelFile
from corral.artifacts.settings import Peer
from corral.bus.messages import FetchedFile, FoundPath, ModelFetchRequest
from corral.core.errors import Conflict, InvalidInput
from corral.worker.backends.jobs import Jobs, Listener
from corral.worker.files.areas import Area, OutsideArea
from corral.worker.files.uploads import TARGET
from corral.worker.ports import Fetch


@dataclass(frozen=True, slots=True)
class ModelFiles:
    area: Area
    artifacts: Fetch
    jobs: Jobs
    request_cleanup: Callable[[], None]
    """Schedules garbage collection."""
    requested: dict[str, int] = field(default_factory=dict)
    """By name: the generation of the latest load that requested it."""
    deletions: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Loads do not look up files while a deletion is in progress."""

    async def fetch(self, request: ModelFetchRequest, *, listener: Listener | None = None) -> list[FetchedFile]:
        """Verifies all files before it places any. Identical requests share one job, which outlives its callers."""
        await self._record_requested(request)
        files = [ModelFile(file.filename, file.uri, file.sha256) for file in request.files]
        peers = tuple(Peer(base_url=peer.url, token=peer.token, is_far=peer.is_far) for peer in request.peers)
        if not files:
            return []

        async def work(cancel: CancelToken, report: Listener) -> list[PlacedFile]:
            return await self.artifacts.install_files(
                files, target_dir=self.area.root, peers=peers, on_progress=report, cancel=cancel
            )

        key = msgspec.json.encode(msgspec.structs.replace(request, op_id="", paths=[], peers=[], generation=None))
        placed = await self.jobs.join(key, work, backend=request.model, op_id=request.op_id, listener=listener)
        return [
            FetchedFile(
                filename=self.area.relative(str(one.path)) or one.path.name,
                path=str(one.path),
                digest=one.digest,
                size=one.size,
            )
            for one in placed
        ]

    async def find(self, names: Iterable[str]) -> dict[str, FoundPath]:
        """The names that exist. Names outside the directory are ignored."""
        return await asyncio.to_thread(self._find, tuple(names))

    def _find(self, names: tuple[str, ...]) -> dict[str, FoundPath]:
        found = {}
        for name in names:
            status = self.area.look(name)
            if status is not None and self.area.look(name + TARGET) is None:  # else the upload is incomplete
                size = status.st_size if stat.S_ISREG(status.st_mode) else None
                found[name] = FoundPath(path=str(self.area.path(name)), size=size)
        return found

    async def _record_requested(self, request: ModelFetchRequest) -> None:
        if request.generation is None:
            return
        async with self.deletions:
            for name in (*(file.filename for file in request.files), *request.paths):
                key = posixpath.normpath(name)
                self.requested[key] = max(request.generation, self.requested.get(key, 0))

    async def delete(self, model: str, *, generation: int | None = None) -> None:
        """Deletes a directory, or a file and its companions; idempotent. Raises Conflict if a load newer than the
        deletion requested it."""
        async with self.deletions:
            if generation is not None:
                self._reject_requested(posixpath.normpath(model), generation)
            await self._delete(model)

    def _reject_requested(self, model: str, generation: int) -> None:
        for name, newest in self.requested.items():
            if newest > generation and (name == model or name.startswith((f"{model}/", f"{model}."))):
                raise Conflict(f"{name} was not deleted: a newer load has requested it")
        for name in [name for name in self.requested if name == model or name.startswith(f"{model}/")]:
            del self.requested[name]

    async def _delete(self, model: str) -> None:
        kept = await self.artifacts.list_files()
        try:
            if model.startswith("/"):
                raise OutsideArea(model)
            await asyncio.to_thread(self.area.remove, model)
        except OutsideArea:
            raise InvalidInput(f'model name "{model[:200]}" escapes models directory') from None
        gone = [file.digest for file in kept if file.digest is not None and self.area.look(file.name) is None]
        self.artifacts.release(gone)
        self.request_cleanup()
