"""One load, from a job to a replica that serves. Every step may be repeated: whoever takes the job over begins where
the last owner stood, and the worker answers a question it was asked before from what it has."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
import structlog

from corral.bus.messages import (
    BlobPeer,
    CancelRequest,
    CommandExtras,
    InstallProgress,
    InstallReply,
    InstallRequest,
    ModelFetchReply,
    ModelFetchRequest,
    StartedProcess,
    StartOptions,
    WeightsFile,
    decode,
    encode,
)
from corral.bus.subjects import BACKEND_INSTALL, CANCEL, MODEL_FETCH, node_subject
from corral.controller.load_ports import Build, Builds, GrpcLoader, Link, PeerBook, Stager, Traffic
from corral.controller.needs import Needs
from corral.core.errors import (
    Conflict,
    CorralError,
    Fenced,
    NoResponders,
    NotFound,
    OutcomeUnknown,
    TimedOut,
    Unavailable,
)
from corral.core.load_jobs import (
    ABSOLUTE_S,
    LEASE_S,
    RENEW_S,
    LoadProgress,
    LoadState,
    retry_delay_s,
    stall_window_s,
)
from corral.core.load_plan import EngineStart, WeightsPlan, backend_of, plan_engine, plan_weights
from corral.core.model_config import ConfigFile
from corral.core.nodes import Node, NodeId, NodeStatus
from corral.core.observed import ObservedBackend, find_backend
from corral.core.placement import Decision, Need, Placed, Waiting, place
from corral.core.replicas import COMING, Replica
from corral.core.room import device_class
from corral.core.routing import LOCALAI_GRPC, OPENAI
from corral.core.variants import Unfit
from corral.store.load_jobs import Loaded, LoadJob
from corral.store.models import StoredModel
from corral.store.replicas import FleetView
from corral.store.stores import Stores
from corral.system import Clock, Ids

log = structlog.get_logger()

ASK_WITHIN_S = 60.0
ASK_AGAIN_S = 1.0
PLACE_TRIES = 16
T = TypeVar("T")


class LoadFailed(Unavailable):
    """A worker or backend said why it cannot."""

    code = "model_load_failed"


class NodeLost(Unavailable):
    """The node the load was on is gone; it goes on elsewhere."""

    code = "node_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTools:
    stores: Stores
    bus: Link
    builds: Builds
    peers: PeerBook
    needs: Needs
    traffic: Traffic
    grpc: GrpcLoader | None
    stager: Stager | None
    shared_models: bool
    """Every machine sees the same models directory: nothing is brought anywhere."""
    stop_replicas: Callable[[list[Replica]], Awaitable[None]]
    """Ends processes and waits until they are gone."""
    hint: Callable[[], Awaitable[None]]
    clock: Clock
    ids: Ids


class LoadRun:
    def __init__(self, job: LoadJob, tools: LoadTools) -> None:
        self._job, self._tools = job, tools
        self._progress = LoadProgress(model=job.model, state=job.state, node=job.node_name)
        self._sign_s = tools.clock.monotonic_s()
        self._began_s = self._sign_s
        self._weights_bytes: int | None = None
        self._need: Need | None = None
        """As it was placed; None when an earlier owner of the job did that."""
        self._node_id = job.node_id

    @property
    def op_id(self) -> str:
        return self._job.id

    def hear(self, message: InstallProgress) -> None:
        """A sign of life from the worker."""
        self._sign_s = self._tools.clock.monotonic_s()
        extras = message.corral
        if extras is None or self._progress.state is not LoadState.STAGING:
            return
        self._progress = replace(
            self._progress,
            bytes_sent=extras.bytes_done,
            total_bytes=extras.bytes_total or 0,
            eta_s=extras.eta_s,
        )

    async def run(self) -> None:
        job = self._job
        try:
            await self._while_leased()
        except asyncio.CancelledError:
            try:
                await self._tools.stores.load_jobs.release(job)
            except CorralError as error:  # then its lease runs out by itself
                log.info("load.not_released", model=job.model, error=str(error))
            raise
        finally:
            await self._tools.hint()

    async def _while_leased(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(self._keep_lease())
                try:
                    await self._carry_out()
                finally:
                    keeping.cancel()
        except* Fenced:
            log.info("load.taken_over", model=self._job.model)

    async def _keep_lease(self) -> None:
        """Until cancelled, or until the job is another's; then everything here ends."""
        written = self._progress
        while True:
            await asyncio.sleep(RENEW_S if self._progress == written else 0.5)
            progress = self._progress
            try:
                if progress == written:
                    await self._tools.stores.load_jobs.renew(self._job, lease_s=LEASE_S)
                else:
                    await self._tools.stores.load_jobs.note_progress(self._job, progress, lease_s=LEASE_S)
                    written = progress
            except Fenced:
                raise
            except CorralError as error:  # the store is away; whether the lease held is known when it is back
                log.warning("load.lease_not_renewed", model=self._job.model, error=str(error))

    async def _carry_out(self) -> None:
        job, jobs = self._job, self._tools.stores.load_jobs
        started = False
        try:
            model = await self._model()
            if model is None:
                return
            placed = await self._place(model)
            if placed is None:
                return
            replica, node = placed
            found = await self._stage(model, node)
            if not await self._still_fits(node):
                return
            started = True
            loaded = await self._start(model, replica, node, found)
            await self._write(lambda: jobs.finish(job, loaded))
            log.info("load.ready", model=job.model, node=node.name, slot=replica.slot, after_ms=loaded.load_ms)
        except Fenced:
            raise
        except NodeLost as error:
            log.warning("load.node_lost", model=job.model, node=job.node_name, error=str(error))
            await self._write(lambda: jobs.unplace(job, again_in_s=0.5))
        except Conflict as error:  # overtaken by an edit, a delete or an unload
            why = str(error)
            log.info("load.overtaken", model=job.model, why=why)
            await self._write(lambda: jobs.give_up(job, why))
        except CorralError as error:
            await self._fail(error, started=started)
        except Exception as error:
            log.exception("load.crashed", model=job.model)
            await self._fail(Unavailable(f"an error of Corral's own, see the log: {error!r}"), started=started)

    async def _fail(self, error: CorralError, *, started: bool) -> None:
        job = self._job
        delay_s = retry_delay_s(job.attempts + 1, draw=self._tools.ids.draw())
        log.warning("load.failed", model=job.model, node=self._progress.node, error=str(error), again_in_s=delay_s)
        await self._cancel_remote()
        await self._write(lambda: self._tools.stores.load_jobs.fail(job, str(error), again_in_s=delay_s, stop=started))

    async def _write(self, work: Callable[[], Awaitable[T]]) -> T:
        """What was done must be written down: while the store is away it is tried again, behind the fence."""
        while True:
            try:
                return await work()
            except (Conflict, NotFound):
                raise
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("load.not_written", model=self._job.model, error=str(error))
                await asyncio.sleep(ASK_AGAIN_S)

    # What is loaded

    async def _model(self) -> StoredModel | None:
        """None when nobody wants this load any more; an edited model's is asked for anew."""
        stores, job = self._tools.stores, self._job
        try:
            model = await stores.models.read(job.model)
        except NotFound:
            await self._write(lambda: stores.load_jobs.give_up(job, "its model was deleted"))
            return None
        if model.revision != job.revision:
            await self._write(lambda: stores.load_jobs.renew_revision(job, model.revision))
            return None
        return model

    # Where

    async def _place(self, model: StoredModel) -> tuple[Replica, Node] | None:
        job, stores = self._job, self._tools.stores
        if job.replica_id is not None:
            kept = await self._kept_place()
            if kept is not None:
                return kept
            await self._write(lambda: stores.load_jobs.unplace(job, again_in_s=0.0))
            return None
        for _ in range(PLACE_TRIES):
            fleet = await stores.replicas.read_fleet(self._tools.traffic.total)
            need = await self._tools.needs.find(
                model,
                fleet,
                only_node=job.target_node,
                # Only beside the one it takes over from; when that is gone already, it is a replica like any other.
                surge_on=next((replica.node_id for replica in fleet.replicas if replica.id == job.replaces), None),
            )
            self._need, self._weights_bytes = need, need.weights_bytes
            decision = self._decide(need, fleet)
            outcome = decision.outcome
            if isinstance(outcome, Waiting):
                delay_s = retry_delay_s(job.attempts + 1, draw=self._tools.ids.draw())
                log.info("load.waits", model=job.model, why=outcome.reason, again_in_s=delay_s)
                await stores.load_jobs.wait(job, decision, outcome.reason, again_in_s=delay_s)
                return None
            if outcome.evict:
                await self._evict(outcome)
                continue
            try:
                replica = await stores.load_jobs.reserve(
                    job, need, decision, self._tools.traffic.total, ids=self._tools.ids
                )
            except Fenced:
                raise
            except Conflict:
                continue
            node = next(node for node in fleet.nodes if node.id == replica.node_id)
            self._show(LoadState.INSTALLING, node)
            return replica, node
        raise Unavailable(f"the place for {job.model} was taken by others {PLACE_TRIES} times; it is tried again")

    async def _still_fits(self, node: Node) -> bool:
        """The first time a model is loaded its size is known only now. Where it does not fit it gives its place back,
        and is placed by its size."""
        need = self._need
        if need is None or self._weights_bytes is None or need.memory_bytes(device_class(node)) is not None:
            return True
        job, jobs = self._job, self._tools.stores.load_jobs
        # It has its place: only its size is in question.
        known = Need(
            model=need.model,
            groups=need.groups,
            weights_bytes=self._weights_bytes,
            staged_on=frozenset({node.id}),
            surge_on=need.surge_on,
        )
        why = await self._write(lambda: jobs.enlarge(job, known, self._tools.traffic.total))
        if why:
            log.info("load.does_not_fit", model=job.model, node=node.name, why=why)
            await self._write(lambda: jobs.unplace(job, again_in_s=0.0))
        return not why

    def _decide(self, need: Need, fleet: FleetView) -> Decision:
        """A node on which it has just failed only if there is no other."""
        last = self._job.node_id
        if self._job.attempts and last is not None:
            elsewhere = place(replace(need, avoid=frozenset({last})), fleet.rooms)
            if isinstance(elsewhere.outcome, Placed) and not elsewhere.outcome.evict:
                return elsewhere
        return place(need, fleet.rooms)

    async def _kept_place(self) -> tuple[Replica, Node] | None:
        """What an earlier owner of the job reserved, if it still stands."""
        job, stores = self._job, self._tools.stores
        rows = [row for row in await stores.replicas.read_of_model(job.model) if row.id == job.replica_id]
        if not rows or rows[0].state not in COMING:
            return None
        try:
            node = await stores.nodes.read_one(rows[0].node_id)
        except NotFound:
            return None
        if node.status is NodeStatus.OFFLINE:
            return None
        return rows[0], node

    async def _evict(self, outcome: Placed) -> None:
        stores = self._tools.stores
        rows = await stores.replicas.want_stopped(outcome.evict, why=f"it makes room for {self._job.model}")
        await self._tools.hint()
        await self._tools.stop_replicas(rows)

    # Weights

    async def _stage(self, model: StoredModel, node: Node) -> Mapping[str, str]:
        """Absolute paths on the node, by name."""
        plan = plan_weights(model.config)
        if not plan.files and not plan.paths:
            return {}
        self._show(LoadState.STAGING, node, total_files=len(plan.files))
        reply = await self._fetch(model, node, () if self._tools.shared_models else plan.files, plan.paths)
        missing = [name for name in plan.paths if name not in reply.found]
        if missing and self._tools.shared_models:
            raise LoadFailed(
                f"{', '.join(missing)} is not in the models directory of {node.name}, which is said to be shared"
            )
        if missing and self._tools.stager is not None:
            left = await self._tools.stager.stage(node, missing, self._on_staged)
            if left is not None:
                reply = await self._fetch(model, node, left, plan.paths)
        self._weights_bytes = _size_of(plan, reply)
        files = sorted({*(file.filename for file in plan.files), *reply.found})
        await self._write(
            lambda: self._tools.stores.load_memory.note_staged(
                node.id, model.name, model.revision, self._weights_bytes, files
            )
        )
        return {name: found.path for name, found in reply.found.items()}

    async def _weights_peers(self, model: StoredModel, node: Node) -> list[BlobPeer]:
        """Machines that have served the model: near, and the origin is everybody's."""
        staged = await self._tools.stores.load_memory.read_staged(model.name)
        return await self._tools.peers.among(staged.keys(), besides=node.id)

    async def _fetch(
        self, model: StoredModel, node: Node, files: Sequence[ConfigFile], paths: Sequence[str]
    ) -> ModelFetchReply:
        """The node gets the files by itself, and tells which of the paths it has."""
        request = ModelFetchRequest(
            model=model.name,
            files=[WeightsFile(file.filename, file.uri, file.sha256) for file in files],
            paths=list(paths),
            peers=await self._weights_peers(model, node) if files else [],
            op_id=self.op_id,
        )
        try:
            data = await self._ask(node, MODEL_FETCH, encode(request))
        except NoResponders:
            return ModelFetchReply(success=True)  # a LocalAI worker: it takes files, and fetches none
        reply = decode(data, ModelFetchReply)
        if not reply.success:
            raise LoadFailed(f"{node.name} could not get the weights of {model.name}: {reply.error}")
        return reply

    def _on_staged(self, files: int, there: int, total: int) -> None:
        self._sign_s = self._tools.clock.monotonic_s()
        self._progress = replace(self._progress, total_files=files, bytes_sent=there, total_bytes=total)

    # Process

    async def _start(self, model: StoredModel, replica: Replica, node: Node, found: Mapping[str, str]) -> Loaded:
        began_s = self._tools.clock.monotonic_s()
        self._show(LoadState.LOADING, node)
        backend = backend_of(model.config)
        build = await self._build(backend, node)
        engine = plan_engine(model.config, found, _known_options(build))
        digest = build.digest if not isinstance(build, ObservedBackend) else None
        peers = await self._tools.peers.find(digest, besides=node.id)
        request = InstallRequest(
            backend=backend,
            model_id=model.name,
            replica_index=replica.slot,
            op_id=self.op_id,
            corral=_extras(build, engine, peers, generation=replica.generation),
        )
        reply = decode(await self._ask(node, BACKEND_INSTALL, encode(request)), InstallReply)
        if not reply.success:
            raise LoadFailed(f"{node.name} could not start {model.name}: {reply.error}")
        process = reply.corral or StartedProcess(backend=backend)
        protocol = process.protocol or LOCALAI_GRPC
        running = replace(replica, address=reply.address or node.address, protocol=protocol, token=process.token or "")
        if protocol == LOCALAI_GRPC:
            await self._load_grpc(model, running, found)
        return Loaded(
            address=running.address,
            protocol=protocol,
            token=running.token,
            process_key=process.process_key or f"{model.name}#{replica.slot}",
            backend=process.backend or backend,
            backend_digest=process.digest,
            epoch=node.epoch,
            pid=process.pid,
            capacity=engine.slots if protocol == OPENAI else None,
            load_options=msgspec.json.encode(engine).decode(),
            load_ms=int((self._tools.clock.monotonic_s() - began_s) * 1000),
            device=device_class(node),
        )

    async def _load_grpc(self, model: StoredModel, replica: Replica, found: Mapping[str, str]) -> None:
        if self._tools.grpc is None:
            raise LoadFailed(f"{model.name} needs a backend that speaks gRPC, and this frontend cannot load such")
        within_s = stall_window_s(LoadState.LOADING, self._weights_bytes)
        await self._tools.grpc.load(model.config, replica, paths=found, within_s=within_s)

    async def _build(self, backend: str, node: Node) -> Build | ObservedBackend:
        """What is installed is used as it is: an upgrade is somebody's decision, not a load's."""
        installed = await self._tools.stores.observed.read_backends([NodeId(node.id)])
        found = find_backend(installed.get(node.id, ()), backend)
        if found is not None:
            return found
        build = (await self._tools.builds.resolve(backend, [node]))[node.id]
        if isinstance(build, Unfit):
            raise LoadFailed(f"no build of {backend} fits {node.name}: {build.reason}")
        resolved: Build = build
        return resolved

    # Asking, with patience

    async def _ask(self, node: Node, verb: str, data: bytes) -> bytes:
        """Silence is borne for the step's window since the last sign of life; then the work is called off."""
        clock = self._tools.clock
        self._sign_s = clock.monotonic_s()
        window_s = stall_window_s(self._progress.state, self._weights_bytes)
        while True:
            try:
                return await self._tools.bus.request(node_subject(node.id, verb), data, within_s=ASK_WITHIN_S)
            except NoResponders as error:
                if verb == MODEL_FETCH and node.key_hash is None:
                    raise
                problem: CorralError = error
            except (OutcomeUnknown, Unavailable) as error:
                problem = error
            await self._check_node(node)
            now_s = clock.monotonic_s()
            if now_s - self._sign_s > window_s or now_s - self._began_s > ABSOLUTE_S:
                step, quiet_s = self._progress.state.value, now_s - self._sign_s
                raise TimedOut(f"{node.name} gave no sign of life for {quiet_s:.0f} s while {step}: {problem}")
            await asyncio.sleep(ASK_AGAIN_S)

    async def _check_node(self, node: Node) -> None:
        try:
            now = await self._tools.stores.nodes.read_one(node.id)
        except NotFound:
            raise NodeLost(f"{node.name} was removed") from None
        except CorralError as error:
            log.warning("load.node_not_checked", node=node.name, error=str(error))
            return
        if now.status in (NodeStatus.OFFLINE, NodeStatus.PENDING):
            raise NodeLost(f"{node.name} is {now.status.value}")

    async def _cancel_remote(self) -> None:
        """Giving up stops the work, so that it does not finish for nobody."""
        if self._node_id is None:
            return
        try:
            await self._tools.bus.request(
                node_subject(self._node_id, CANCEL), encode(CancelRequest(op_id=self.op_id)), within_s=5.0
            )
        except CorralError as error:
            log.debug("load.cancel_not_heard", model=self._job.model, error=str(error))

    def _show(self, state: LoadState, node: Node, *, total_files: int = 0) -> None:
        self._node_id = node.id
        self._progress = LoadProgress(
            model=self._job.model, state=state, node=node.name, total_files=total_files or self._progress.total_files
        )
        self._sign_s = self._tools.clock.monotonic_s()


def _size_of(plan: WeightsPlan, reply: ModelFetchReply) -> int | None:
    """Of everything the model names; unknown when a part of it is a directory."""
    sizes: dict[str, int | None] = {file.filename: file.size for file in reply.files}
    sizes |= {name: found.size for name, found in reply.found.items()}
    known = [size for size in sizes.values() if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _known_options(build: Build | ObservedBackend) -> frozenset[str]:
    manifest: Any = {}
    if not isinstance(build, ObservedBackend) and build.manifest:
        manifest = msgspec.json.decode(build.manifest)
    return frozenset(manifest.get("options") or ())


def _extras(
    build: Build | ObservedBackend, engine: EngineStart, peers: list[BlobPeer], *, generation: int
) -> CommandExtras:
    start = StartOptions(
        model=engine.model,
        model_name=engine.model_name,
        context=engine.context,
        slots=engine.slots,
        embeddings=engine.embeddings,
        options=dict(engine.options),
        generation=generation,
    )
    if isinstance(build, ObservedBackend):
        return CommandExtras(start=start)
    return CommandExtras(
        digest=build.digest or None,
        uris=list(build.uris) or None,
        version=build.version or None,
        sha256=build.sha256 or None,
        manifest=msgspec.json.decode(build.manifest) if build.manifest else None,
        start=start,
        peers=peers or None,
    )
