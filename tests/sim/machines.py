"""A machine: its worker, what it runs, and all that can happen to it."""

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from corral.bus.messages import (
    CancelRequest,
    FoundPath,
    InstallProgress,
    InstallReply,
    InstallRequest,
    ListedBackend,
    ModelFetchReply,
    ModelFetchRequest,
    ModelsRunningReply,
    ModelStopReply,
    ModelStopRequest,
    NodeReport,
    ReportedProcess,
    StartedProcess,
    decode,
    encode,
)
from corral.bus.subjects import (
    BACKEND_INSTALL,
    CANCEL,
    MODEL_FETCH,
    MODEL_STOP,
    MODELS_RUNNING,
    REPORT,
    REPORT_NOW,
    node_subject,
    progress_subject,
)
from corral.core.nodes.node import NodeClaim, NodeId, NodeType, NodeUsage
from corral.core.nodes.observed import ProcessStatus
from corral.core.processes.leases import plan_lease, was_revoked
from corral.store.nodes.registration import Heartbeat, Registered
from corral.store.stores import Stores

if TYPE_CHECKING:
    from sim.world import World

GIB = 1 << 30
HEARTBEAT_S = 10.0
DIGEST = "sha256:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    key: str
    model: str
    slot: int
    pid: int
    token: str
    generation: int | None
    state: str
    since_s: float
    """When it got this state."""


def _sign_of_life(op_id: str, node_id: str) -> InstallProgress:
    return InstallProgress(op_id=op_id, node_id=node_id, backend="engine", percentage=0.0)


class Worker:
    def __init__(self, world: "World", name: str) -> None:
        self._world, self.name = world, name
        self.node_id = ""
        self.alive = False
        self.linked = True
        self.well_since_s = 0.0
        """Alive and linked without a break since."""
        self.processes: dict[str, Process] = {}
        self._starts: dict[str, tuple[int, asyncio.Future[InstallReply]]] = {}
        self.starts_in_s: float | None = None
        """None is a moment; infinity never comes."""
        self.shows_progress = False
        self.cancelled: list[str] = []
        self._incarnation = 0
        self._epoch = 0
        self._sequence = 0
        self._installed = False
        self._life: asyncio.TaskGroup | None = None

    # Faults

    def start(self) -> None:
        self.alive = True
        self._incarnation += 1
        self._epoch = 0
        self.well_since_s = self._world.now_s()
        self._world.spawn(self._live(self._incarnation), name=f"{self.name} {self._incarnation}")

    def kill(self, *, with_processes: bool) -> None:
        self.alive = False
        if with_processes:
            self.processes.clear()

    def cut(self) -> None:
        self.linked = False

    def mend(self) -> None:
        self.linked = True
        self.well_since_s = self._world.now_s()

    def crash_process(self, key: str) -> None:
        if self.alive:
            self._world.spawn(self._restart(self.processes[key]), name=f"{self.name} restarts {key}")
        else:
            del self.processes[key]

    async def _restart(self, process: Process) -> None:
        world, incarnation = self._world, self._incarnation
        down = replace(process, state="backing_off", since_s=world.now_s())
        self.processes[process.key] = down
        self.report()
        await asyncio.sleep(1 + 5 * world.draw("proc"))
        if self._incarnation != incarnation or not self.alive or self.processes.get(process.key) is not down:
            return
        if world.draw("proc") < 0.3:
            del self.processes[process.key]  # the budget of restarts is used up
        else:
            again = replace(process, pid=world.next_pid(), token=world.ids.token(), since_s=world.now_s())
            self.processes[process.key] = again
        self.report()

    # Life

    async def _live(self, incarnation: int) -> None:
        world = self._world
        claim = NodeClaim(
            name=self.name,
            node_type=NodeType.BACKEND,
            address="",
            http_address=f"{self.name}:1",
            key_hash=f"key of {self.name}",
            instance=f"{self.name} {incarnation}",
            total_ram=64 * GIB,
            available_ram=32 * GIB,
            total_disk=100 * GIB,
            available_disk=50 * GIB,
            capability="cpu",
        )
        while self.alive and self._incarnation == incarnation:
            stores = world.any_stores()
            if stores is None or not self.linked:
                await asyncio.sleep(1)
                continue
            try:
                if not self._epoch:
                    told = await stores.registration.register(
                        claim, new_id=world.ids.uuid(), may_join=True, auto_approve=True
                    )
                    assert isinstance(told, Registered), told
                    self.node_id, self._epoch = told.node.id, told.node.epoch
                    self._sequence = 0
                    world.hint()
                beat = Heartbeat(
                    node_id=NodeId(self.node_id),
                    usage=NodeUsage(),
                    instance=claim.instance,
                    secret_hash=claim.key_hash or "",
                )
                [outcome] = await stores.registration.record_heartbeats([beat])
                if outcome.accepted:
                    await self._obey(stores)
            except Exception as error:
                world.note(f"{self.name} beat lost: {type(error).__name__}")
            self.report()
            await asyncio.sleep(HEARTBEAT_S * (0.9 + 0.2 * world.draw("proc")))

    async def _obey(self, stores: Stores) -> None:
        _, shares = await stores.replicas.read_shares()
        share = shares.get(self.node_id)
        if share is None:
            return
        _, revoked = plan_lease(share, lease_s=1800)
        for key, up_to in revoked.items():
            process = self.processes.get(key)
            if process is not None and was_revoked(generation=process.generation, up_to=up_to):
                del self.processes[key]

    def report(self) -> None:
        if self.alive and self.linked and self._epoch:
            self._world.publish(node_subject(self.node_id, REPORT), encode(self._table(with_secrets=False)))

    def _table(self, *, with_secrets: bool) -> NodeReport:
        self._sequence += 1
        return NodeReport(
            node=self.node_id,
            instance=f"{self.name} {self._incarnation}",
            epoch=self._epoch,
            sequence=self._sequence,
            backends=[ListedBackend(name="engine", is_system=False, is_meta=False, digest=DIGEST)]
            if self._installed
            else [],
            processes=[
                ReportedProcess(
                    process_key=process.key,
                    model_id=process.model,
                    replica_index=process.slot,
                    backend="engine",
                    digest=DIGEST,
                    protocol="openai",
                    state=ProcessStatus(process.state),
                    pid=process.pid,
                    address=self._address(process) if process.state == "ready" else None,
                    token=process.token if with_secrets else None,
                )
                for process in self.processes.values()
            ],
        )

    def _address(self, process: Process) -> str:
        return f"{self.name}:{10_000 + process.pid}"

    # Orders

    async def answer(self, verb: str, data: bytes) -> bytes:
        incarnation = self._incarnation
        answer = await self._carry_out(verb, data)
        if self._incarnation != incarnation or not self.alive or not self.linked:
            await asyncio.Event().wait()  # nobody is there any more to answer
        return answer

    async def _carry_out(self, verb: str, data: bytes) -> bytes:
        if verb == MODELS_RUNNING:
            return encode(ModelsRunningReply(models=[], epoch=self._epoch))
        if verb == REPORT_NOW:
            return encode(self._table(with_secrets=True))
        if verb == MODEL_FETCH:
            wanted = decode(data, ModelFetchRequest)
            await asyncio.sleep(self._world.draw("proc"))
            found = {path: FoundPath(path=f"/models/{path}", size=1 << 20) for path in wanted.paths}
            return encode(ModelFetchReply(success=True, found=found))
        if verb == MODEL_STOP:
            return encode(await self._stop(decode(data, ModelStopRequest)))
        if verb == BACKEND_INSTALL:
            return encode(await self._install(decode(data, InstallRequest)))
        assert verb == CANCEL, verb
        self.cancelled.append(decode(data, CancelRequest).op_id)
        return b"{}"

    async def _stop(self, wanted: ModelStopRequest) -> ModelStopReply:
        await asyncio.sleep(self._world.draw("proc"))
        gone = self.processes.pop(wanted.process_key, None)
        self._starts.pop(wanted.process_key, None)
        self.report()
        return ModelStopReply(matched=gone is not None, freed=True, terminated=True, process_key=wanted.process_key)

    async def _load(self, op_id: str) -> None:
        left_s = 1 + 8 * self._world.draw("proc") if self.starts_in_s is None else self.starts_in_s
        while left_s > 0:
            await asyncio.sleep(min(left_s, 60))
            left_s -= 60
            if self.shows_progress:
                self._world.publish(progress_subject(self.node_id, op_id), encode(_sign_of_life(op_id, self.node_id)))

    async def _install(self, wanted: InstallRequest) -> InstallReply:
        """Whoever asks again for what is being started waits for the same start, and leaving does not stop it."""
        self._installed = True
        key = f"{wanted.model_id}#{wanted.replica_index}"
        generation = wanted.corral.start.generation if wanted.corral and wanted.corral.start else None
        running = self.processes.get(key)
        if running is not None and running.state == "ready":
            self.processes[key] = replace(running, generation=generation)
            return self._started(running)
        begun = self._starts.get(key)
        if begun is None or begun[0] != self._incarnation:
            outcome: asyncio.Future[InstallReply] = asyncio.get_running_loop().create_future()
            begun = self._starts[key] = (self._incarnation, outcome)
            process = Process(
                key=key,
                model=wanted.model_id,
                slot=wanted.replica_index,
                pid=self._world.next_pid(),
                token=self._world.ids.token(),
                generation=generation,
                state="starting",
                since_s=self._world.now_s(),
            )
            self._world.spawn(self._start(process, wanted.op_id or "", outcome), name=f"{self.name} starts {key}")
        return await asyncio.shield(begun[1])

    async def _start(self, starting: Process, op_id: str, outcome: asyncio.Future[InstallReply]) -> None:
        world, incarnation, key = self._world, self._incarnation, starting.key
        self.processes[key] = starting
        self.report()
        await self._load(op_id)
        if self._incarnation != incarnation or not self.alive:
            if self.processes.get(key) is starting:
                del self.processes[key]
            return  # nobody is told: who asked finds out by itself
        if self._starts.get(key) == (incarnation, outcome):
            del self._starts[key]
        if self.processes.get(key) is not starting:
            outcome.set_result(InstallReply(success=False, error="it was stopped while starting"))
            return
        if world.chaos and world.draw("proc") < 0.1:
            del self.processes[key]
            outcome.set_result(InstallReply(success=False, error="exit code 1"))
        else:
            ready = self.processes[key] = replace(starting, state="ready", since_s=world.now_s())
            outcome.set_result(self._started(ready))
        self.report()

    def _started(self, process: Process) -> InstallReply:
        return InstallReply(
            success=True,
            address=self._address(process),
            corral=StartedProcess(
                backend="engine",
                digest=DIGEST,
                protocol="openai",
                process_key=process.key,
                pid=process.pid,
                token=process.token,
            ),
        )
