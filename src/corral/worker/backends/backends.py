"""The installed backends and their changes: install, upgrade, roll back, delete.

Changes of one backend share a lock; different backends change concurrently. The table of installed backends is kept in
memory, so that finding a running process needs no disk access.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import msgspec
import structlog

from corral.artifacts import CancelToken, InstalledBackend, InstalledVersion
from corral.artifacts.errors import NotInstalled
from corral.bus.messages import CommandExtras, DeleteRequest, InstallRequest, ListedBackend, RollbackRequest
from corral.core.backends.build import BuildRef, plain_name
from corral.core.errors import InvalidInput
from corral.core.processes.process import ProcessKey, ProcessView
from corral.worker.backends.applied_generations import AppliedGenerations
from corral.worker.backends.jobs import Jobs, Listener, Result, Work, unless_cancelled
from corral.worker.backends.requests import RequestReader
from corral.worker.backends.system_backends import SystemBackend, is_system
from corral.worker.named_locks import NamedLocks
from corral.worker.ports import Fetch
from corral.worker.processes.localai_grpc import free_model
from corral.worker.processes.supervisor import Supervisor

log = structlog.get_logger()

LIST_WITHIN_S = 1.0
ROLLING = "rolling"


@dataclass(slots=True)
class StoppedBackends:
    """Keys of the processes that a command has stopped, reported even if the command fails."""

    keys: list[str] = field(default_factory=list)


class Backends:
    def __init__(
        self,
        artifacts: Fetch,
        supervisor: Supervisor,
        generations: AppliedGenerations,
        jobs: Jobs,
        reader: RequestReader,
        *,
        changed: Callable[[], None],
        request_cleanup: Callable[[], None],
        read_system: Callable[[], dict[str, InstalledBackend]],
    ) -> None:
        """`read_system` blocks and returns preinstalled backends. `request_cleanup` schedules garbage collection."""
        self._artifacts, self._supervisor, self._generations, self._jobs = artifacts, supervisor, generations, jobs
        self._changes: Counter[str] = Counter()
        """Deletes and rollbacks in progress, by operation."""
        self._reader, self._changed, self._request_cleanup, self._read_system = (
            reader,
            changed,
            request_cleanup,
            read_system,
        )
        self._table: dict[str, InstalledBackend] = {}
        self._locks = NamedLocks()
        self._ended: dict[bytes, StoppedBackends] = {}

    # Read

    async def refresh(self) -> None:
        table = await asyncio.to_thread(self._read_system)
        table |= {backend.name: backend for backend in await self._artifacts.list_backends()}
        if table != self._table:
            self._table = table
            self._changed()

    def find(self, name: str) -> InstalledBackend | None:
        """Finds by directory, by name or alias in the metadata, or by family name. From memory."""
        plain = plain_name(name)
        if not plain:
            return None
        flat = plain.replace("/", "__")
        found = self._table.get(flat) or self._table.get(self._generations.concrete(plain) or "")
        if found is not None:
            return found
        for backend in self._table.values():
            metadata = backend.current.metadata if backend.current is not None else None
            if metadata is not None and plain in (metadata.name, metadata.alias):
                return backend
        return None

    def current(self, name: str) -> InstalledVersion | None:
        backend = self.find(name)
        return backend.current if backend is not None else None

    def generation(self, name: str) -> int | None:
        return self._generations.applied(name, *self._generations.families(name))

    async def read_list(self) -> list[ListedBackend]:
        """From disk, which LocalAI's tools may have changed; from memory if the disk is slow."""
        try:
            async with asyncio.timeout(LIST_WITHIN_S):
                await self.refresh()
        except TimeoutError:
            log.warning("backends.listed_from_memory")
        return self.listed()

    def listed(self) -> list[ListedBackend]:
        rows = []
        for backend in self._table.values():
            if backend.current is None and not backend.problem:
                continue  # no version was ever activated: not installed
            rows.append(_listed(backend, self.generation(backend.name)))
            rows += [
                _family_row(family, backend, self._generations.applied(family))
                for family in self._generations.families(backend.name)
            ]
        return rows

    def applied(self) -> dict[str, int]:
        """Generations by the name in the command, including deleted backends."""
        return self._generations.all_applied()

    def version_text(self, name: str, digest: str) -> str:
        """The version number from the metadata; empty if the version is no longer installed."""
        backend = self._table.get(name)
        versions = backend.versions if backend is not None else ()
        return next((version.metadata.version for version in versions if version.digest == digest), "")

    # Change

    async def accept(self, request: InstallRequest) -> None:
        """Raises OutdatedCommand if a newer command has been accepted."""
        await self._generations.accept(plain_name(request.backend), generation_of(request))

    async def note_applied(self, request: InstallRequest) -> None:
        await self._note_applied(request.backend, generation_of(request))

    async def _note_applied(self, backend: str, generation: int | None) -> None:
        if await self._generations.record_applied(plain_name(backend), generation):
            self._changed()

    async def install(
        self, request: InstallRequest, stopped: StoppedBackends, *, listener: Listener | None = None
    ) -> InstalledVersion:
        """Returns at once if it is installed. Identical requests share one download."""
        await self.accept(request)
        if not request.force and not self._is_changing(request) and (present := self._satisfied(request)) is not None:
            return await self._note_present(request, present)

        async def work(cancel: CancelToken, report: Listener) -> InstalledVersion:
            async with self._turn(request.backend or request.name, cancel):
                await self.accept(request)  # a newer command may have arrived meanwhile
                if not request.force and (present := self._satisfied(request)) is not None:
                    return await self._note_present(request, present)  # the previous holder of the lock installed it
                if request.force:
                    await self._stop_users(request.backend, stopped, reason="it is being reinstalled")
                return await self._fetch(request, cancel, report)

        return await self._join("install", request, work, listener)

    async def upgrade(
        self, request: InstallRequest, stopped: StoppedBackends, *, listener: Listener | None = None
    ) -> InstalledVersion:
        extras = request.corral or CommandExtras()
        if extras.strategy not in (None, ROLLING):
            raise InvalidInput(f"unknown upgrade strategy {extras.strategy!r}; use {ROLLING!r}")
        self._refuse_system(self.find(request.backend or request.name))
        await self.accept(request)
        key = _job_key("upgrade", request)
        # All requests that share the job share one list: each reports the stopped processes, even if the job fails.
        stopped.keys = self._ended.setdefault(key, stopped).keys

        async def work(cancel: CancelToken, report: Listener) -> InstalledVersion:
            try:
                async with self._turn(request.backend or request.name, cancel):
                    await self.accept(request)
                    if extras.strategy != ROLLING:
                        await self._stop_users(request.backend, stopped, reason="its backend is being upgraded")
                    return await self._fetch(request, cancel, report)
            finally:
                del self._ended[key]

        return await self._join("upgrade", request, work, listener)

    async def rollback(self, request: RollbackRequest) -> InstalledVersion:
        """Activates another version, and makes its build the one of the family. Running processes continue."""
        with self._changing(request.op_id):
            return await self._roll_back(request)

    async def _roll_back(self, request: RollbackRequest) -> InstalledVersion:
        family = plain_name(request.backend)
        await self._generations.accept(family, request.generation)
        async with self.held(request.build or request.backend):
            await self._generations.accept(family, request.generation)
            before = self.find(family)
            former = self._generations.moved_from(family, request.generation) if request.undo else None
            version = await self._return_to(former) if former is not None else None
            if version is None:
                name = self._installed_name(request.backend, request.build)
                to = request.to
                if request.undo:
                    to = to or self._generations.version_before(family, request.generation)
                else:
                    await self._record_before(family, request.generation, before)
                version = await self._artifacts.rollback(name, to=to)
            await self.refresh()
            if request.build or former is not None:
                await self._point(family, version.name, before, request.generation)
            if request.undo:
                await self._generations.record_undone(family, request.generation)
                self._changed()
            else:
                await self._note_applied(request.backend, request.generation)
            return version

    async def _return_to(self, build: str) -> InstalledVersion | None:
        """What an undone change had put another build in the place of; its version has not changed since."""
        await self.refresh()
        backend = self._table.get(build)
        return backend.current if backend is not None else None

    async def delete(self, request: DeleteRequest, stopped: StoppedBackends) -> None:
        """Idempotent: succeeds if the backend is not installed."""
        extras = request.corral or CommandExtras()
        with self._changing(extras.op_id):
            await self._delete(request, extras, stopped)

    async def _delete(self, request: DeleteRequest, extras: CommandExtras, stopped: StoppedBackends) -> None:
        requested = plain_name(request.backend)
        await self._generations.accept(requested, extras.generation)
        for name in dict.fromkeys(((extras.build or BuildRef()).name or request.backend, request.backend)):
            self._jobs.cancel(backend=self._lock_name(name))
            async with self.held(name):
                await self._generations.accept(requested, extras.generation)
                await self._delete_named(name, stopped)
                if name == request.backend:
                    await self._note_applied(requested, extras.generation)

    async def _delete_named(self, name: str, stopped: StoppedBackends) -> None:
        await self.refresh()
        backend = self.find(name)
        self._refuse_system(backend)
        if backend is not None:
            await self._stop_users(backend.name, stopped, reason="its backend is being deleted", unload=True)
            await self._remove(backend)

    async def _remove(self, backend: InstalledBackend) -> None:
        meta = backend.current.metadata.meta_backend_for if backend.current is not None else ""
        for name in dict.fromkeys((backend.name, meta)):
            if not name:
                continue
            try:
                await self._artifacts.remove(name)
            except NotInstalled:
                log.info("backend.already_removed", backend=name)
            await self._generations.forget_concrete(name)
        self._request_cleanup()
        await self.refresh()

    def cancel(self, *, op_id: str, backend: str, keep: bool = False) -> int:
        return self._jobs.cancel(op_id=op_id, backend=self._lock_name(backend) if backend else "", keep=keep)

    def count_changes(self, op_id: str) -> int:
        """The number of deletes and rollbacks of the operation in progress."""
        return self._changes[op_id] if op_id else 0

    @contextmanager
    def _changing(self, op_id: str) -> Iterator[None]:
        self._changes[op_id] += 1
        try:
            yield
        finally:
            self._changes[op_id] -= 1
            if not self._changes[op_id]:
                del self._changes[op_id]

    def held(self, backend: str) -> AbstractAsyncContextManager[None]:
        """Holds the backend's lock, for example while a start selects a version and launches it."""
        return self._locks.held(self._lock_name(backend))

    # Processes of a backend

    def users(self, name: str) -> list[ProcessView]:
        backend = self.find(name)
        names = {name, plain_name(name)} if backend is None else {backend.name, name}
        return [view for view in self._supervisor.list() if view.spec.backend in names]

    async def stop(
        self, keys: Collection[ProcessKey], stopped: StoppedBackends, *, reason: str, unload: bool = True
    ) -> None:
        """Stops concurrently and adds those that ran to `stopped`. Raises if one could not be stopped."""
        before = free_model if unload else None
        results = await asyncio.gather(
            *(self._supervisor.stop(key, reason=reason, before=before) for key in keys), return_exceptions=True
        )
        stopped.keys += [key for key, result in zip(keys, results, strict=True) if result is True]
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _stop_users(self, backend: str, stopped: StoppedBackends, *, reason: str, unload: bool = False) -> None:
        await self.stop([view.key for view in self.users(backend)], stopped, reason=reason, unload=unload)

    # Steps

    def _is_changing(self, request: InstallRequest) -> bool:
        """Whether the backend's lock is held: the installed version may be about to change."""
        return self._locks.is_held(self._lock_name(request.backend or request.name))

    def _satisfied(self, request: InstallRequest) -> InstalledVersion | None:
        """The installed version if it satisfies the request."""
        current = self.current(request.name or request.backend)
        pin = request.pinned_digest
        if current is None or (pin and current.digest != pin):
            return None
        if not request.uri and self._generations.concrete(plain_name(request.backend)) not in (None, current.name):
            return None  # the family has another build
        if not pin and request.uri and current.metadata.uri not in ("", request.uri):
            return None
        return current

    async def _note_present(self, request: InstallRequest, present: InstalledVersion) -> InstalledVersion:
        backend = plain_name(request.backend) or request.name
        await self._generations.record_before(backend, generation_of(request), present.digest)
        await self.note_applied(request)
        return present

    async def _fetch(self, request: InstallRequest, cancel: CancelToken, report: Listener) -> InstalledVersion:
        backend = plain_name(request.backend) or request.name
        before = self.find(backend)
        backend_request = await unless_cancelled(cancel, self._reader.read(request, before))
        cancel.check()
        await self._record_before(backend, generation_of(request), before)
        version = await self._artifacts.install(backend_request, force=request.force, on_progress=report, cancel=cancel)
        self._request_cleanup()
        await self.refresh()  # it is installed, even if recording it fails
        if not request.uri:
            await self._point(backend, version.name, before, generation_of(request))
            self._changed()
        await self.note_applied(request)
        return version

    async def _point(self, family: str, build: str, before: InstalledBackend | None, generation: int | None) -> None:
        former = before.name if before is not None else ""
        await self._generations.record_concrete(family, build, former=former, generation=generation)

    async def _record_before(self, family: str, generation: int | None, before: InstalledBackend | None) -> None:
        current = before.current if before is not None else None
        await self._generations.record_before(family, generation, current.digest if current is not None else "")

    async def _join(self, verb: str, request: InstallRequest, work: Work[Result], listener: Listener | None) -> Result:
        return await self._jobs.join(
            _job_key(verb, request),
            work,
            backend=self._lock_name(request.backend or request.name),
            op_id=request.op_id,
            listener=listener,
        )

    @staticmethod
    def _refuse_system(backend: InstalledBackend | None) -> None:
        if backend is not None and backend.current is not None and is_system(backend):
            raise SystemBackend(backend.name, backend.current.path)

    def _installed_name(self, name: str, build: str | None) -> str:
        backend = self.find(build or name) or self.find(name)
        if backend is None:
            raise NotInstalled(f"Backend {name} is not installed on this node. Install it first.")
        return backend.name

    @asynccontextmanager
    async def _turn(self, backend: str, cancel: CancelToken) -> AsyncIterator[None]:
        """Holds the backend's lock. Stops waiting for it when cancelled."""
        async with AsyncExitStack() as turn:
            await unless_cancelled(cancel, turn.enter_async_context(self.held(backend)))
            yield

    def _lock_name(self, name: str) -> str:
        backend = self.find(name)
        return backend.name if backend is not None else plain_name(name)


def _job_key(verb: str, request: InstallRequest) -> bytes:
    """Equal for requests that can share one job."""
    extras = msgspec.structs.replace(request.corral, start=None, peers=None) if request.corral is not None else None
    same = msgspec.structs.replace(request, model_id="", replica_index=0, op_id="", corral=extras)
    return verb.encode() + msgspec.json.encode(same)


def generation_of(request: InstallRequest) -> int | None:
    return request.corral.generation if request.corral is not None else None


def process_generation_of(request: InstallRequest) -> int | None:
    """The replica's generation if there is one; backends and replicas have separate generations."""
    start = request.corral.start if request.corral is not None else None
    return start.generation if start is not None and start.generation is not None else generation_of(request)


def _listed(backend: InstalledBackend, generation: int | None) -> ListedBackend:
    current = backend.current
    if current is None:
        return ListedBackend(name=backend.name, is_system=False, is_meta=False, problem=backend.problem)
    metadata = current.metadata
    return ListedBackend(
        name=backend.name,
        is_system=is_system(backend),
        is_meta=bool(metadata.meta_backend_for),
        installed_at=metadata.installed_at,
        gallery_url=metadata.gallery_url,
        version=metadata.version,
        uri=metadata.uri,
        digest=metadata.digest,
        alias=metadata.alias,
        generation=generation,
        concrete=metadata.meta_backend_for or None,
        versions=[version.digest for version in backend.versions if version.digest],
        problem=backend.problem,
    )


def _family_row(family: str, backend: InstalledBackend, generation: int | None) -> ListedBackend:
    metadata = backend.current.metadata if backend.current is not None else None
    return ListedBackend(
        name=family,
        is_system=False,
        is_meta=True,
        installed_at=metadata.installed_at if metadata is not None else "",
        gallery_url=metadata.gallery_url if metadata is not None else "",
        generation=generation,
        concrete=backend.name,
    )
