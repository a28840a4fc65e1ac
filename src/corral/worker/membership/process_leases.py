"""Stops processes whose lease was revoked by a frontend, or has expired while no frontend was reachable."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import structlog

from corral.core.errors import CorralError
from corral.core.processes.leases import ProcessLeases, was_revoked
from corral.core.processes.process import ProcessKey
from corral.system import Clock, Disk
from corral.worker.processes.records import read_boot_id
from corral.worker.processes.supervisor import Supervisor

log = structlog.get_logger()

LOOK_EVERY_S = 1.0
"""Leases are polled: a timer set to the end of a lease is wrong after the machine was suspended."""
RENEW_WITHIN_S = 5.0


class _Saved(msgspec.Struct, frozen=True):
    boot_id: str
    leases: ProcessLeases


_decode = msgspec.json.Decoder(_Saved).decode


class ProcessLeaseEnforcer:
    def __init__(self, path: Path, supervisor: Supervisor, *, disk: Disk, clock: Clock) -> None:
        self._path, self._supervisor, self._disk, self._clock = path, supervisor, disk, clock
        self._boot_id = read_boot_id()
        self._leases = self._read()
        self._writing = asyncio.Lock()
        self._revoked: dict[ProcessKey, int] = {}
        self._changed = asyncio.Event()
        self._changed.set()

    def now_s(self) -> float:
        return self._clock.since_boot_s()

    async def grant(self, lengths_s: Mapping[str, float], revoked: Mapping[str, int], *, asked_s: float) -> None:
        """Also written to disk: a restarted worker must not restart the leases while it is disconnected."""
        if asked_s >= self._leases.asked_s and (lengths_s or self._leases.any):
            keys = {ProcessKey(key): length for key, length in lengths_s.items()}
            self._leases = self._leases.renew(keys, asked_s=asked_s)
            await self._write()
        if revoked:
            self._revoked |= {ProcessKey(key): up_to for key, up_to in revoked.items()}
        self._changed.set()

    async def begin(self, key: ProcessKey, *, length_s: float) -> None:
        """The first lease of a process, from the command that started it: if the node is disconnected before a
        heartbeat was answered that knows the process, the lease ends it nevertheless."""
        before = self._leases
        self._leases = before.begin(key, begun_s=self.now_s(), length_s=length_s)
        if self._leases is not before:
            await self._write()
            self._changed.set()

    async def prolong(self, *, asked_s: float) -> None:
        """A frontend without its store answered: it cannot reassign processes, so the leases are extended."""
        if self._leases.any and asked_s > self._leases.asked_s:
            self._leases = self._leases.prolong(asked_s=asked_s)
            await self._write()

    async def enforce(self, renew: Callable[[], Awaitable[None]]) -> None:
        """Runs without end. Before it stops processes with expired leases, `renew` contacts a frontend, which renews
        through `grant`: a machine that was only suspended then keeps the processes that were not revoked."""
        while True:
            await self._changed.wait()
            if not self._leases.any:
                self._changed.clear()
            await self._end_revoked()
            if self._leases.lapsed(self.now_s()):
                await _try(renew)
                await self._end_lapsed()
            if self._leases.any:
                await asyncio.sleep(LOOK_EVERY_S)

    async def _end_revoked(self) -> None:
        revoked, self._revoked = self._revoked, {}
        await self._end(
            [
                view.key
                for view in self._supervisor.list()
                if view.key in revoked and was_revoked(generation=view.spec.generation, up_to=revoked[view.key])
            ],
            reason="its lease was revoked: another node runs it",
        )

    async def _end_lapsed(self) -> None:
        lapsed = self._leases.lapsed(self.now_s())
        if lapsed:
            await self._end(lapsed, reason="its lease expired without contact to a frontend: another node may run it")
            self._leases = self._leases.without(lapsed)
            await self._write()

    async def _end(self, keys: Iterable[ProcessKey], *, reason: str) -> None:
        ending = [key for key in keys if self._supervisor.get(key) is not None]
        if not ending:
            return
        log.warning("worker.leases_ended", processes=ending, reason=reason)
        results = await asyncio.gather(
            *(self._supervisor.stop(key, reason=reason) for key in ending), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _read(self) -> ProcessLeases:
        try:
            saved = _decode(self._disk.read(self._path) or b"")
        except (OSError, msgspec.MsgspecError):
            return ProcessLeases()
        return saved.leases if saved.boot_id == self._boot_id else ProcessLeases()

    async def _write(self) -> None:
        """Serialized: a heartbeat and a renewal may finish at the same time."""
        async with self._writing:
            content = msgspec.json.encode(_Saved(self._boot_id, self._leases))
            try:
                await asyncio.to_thread(self._disk.write, self._path, content)
            except OSError as error:
                log.warning("worker.leases_not_written", error=str(error))


async def _try(renew: Callable[[], Awaitable[None]]) -> None:
    with contextlib.suppress(CorralError, TimeoutError):
        async with asyncio.timeout(RENEW_WITHIN_S):
            await renew()
