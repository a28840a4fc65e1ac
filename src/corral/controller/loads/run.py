"""One load, from a job to a ready replica: place, stage, start (`place_replica`, `stage_weights`, `start_replica`).

Every step may be repeated. A frontend that takes a job over continues from what the store has, and the worker answers a
request it has seen before from its own state.
"""

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
import structlog

from corral.bus.messages import (
    BlobPeer,
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
from corral.bus.subjects import BACKEND_INSTALL, MODEL_FETCH
from corral.controller.loads.localai import publishing_staging
from corral.controller.loads.needs import find_deletions, find_need
from corral.controller.loads.node_rpc import CANCEL_WITHIN_S, LoadJobFailed, NodeLost, NodeRpc
from corral.controller.loads.ports import LoadServices
from corral.controller.loads.tracker import STARTING, LoadTracker
from corral.core.backends.build import BuildRef, ResolvedBackend, plain_name
from corral.core.backends.rollout import OTHERS_FIRST_REASON, STOP_FIRST_DRAIN_MS, STOP_FIRST_REASON
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import (
    Conflict,
    CorralError,
    Fenced,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from corral.core.models.config import ConfigFile
from corral.core.models.load_plan import (
    EngineStart,
    WeightsPlan,
    backend_of,
    borrowed_files,
    by_configured_name,
    capacity_of,
    plan_engine,
    plan_weights,
)
from corral.core.nodes.node import Node, NodeId, NodeStatus
from corral.core.nodes.observed import ObservedBackend, find_backend
from corral.core.replicas.capacity import device_class
from corral.core.replicas.load_backoff import cause_of
from corral.core.replicas.load_jobs import LEASE_S, LOAD_RETRIES, RENEW_S, LoadState
from corral.core.replicas.placement import Decision, Need, Waiting, place, place_instead
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.core.replicas.routing import LOCALAI_GRPC, OPENAI
from corral.core.replicas.staging import FileTransfer
from corral.store.engine.database import StoreConflict
from corral.store.serving.load_claims import LoadClaimStore, ReplicaLoaded
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import FleetView
from corral.store.stores import Stores
from corral.system.loops import wait_or_timeout
from corral.system.resolve_host import check_reach

log = structlog.get_logger()

RELEASE_WITHIN_S = 2.0
"""A frontend that stops does not wait for an unavailable store."""
WRITE_AGAIN_S = 1.0
PLACE_TRIES = 16
STOPPED_WITHIN_S = STOP_FIRST_DRAIN_MS / 1000 + 120.0
FREED_WITHIN_S, POLL_S = 15.0, 0.25
LOCALAI_INSTALL_S = 900.0
"""How long a LocalAI worker may install without a word: before 2026-05-23 it reported no progress."""
T = TypeVar("T")


class BackendDeleted(Unavailable):
    """The backend was deleted from the node of the load. The load is placed again."""

    code = "backend_deleted"


@dataclass(slots=True, kw_only=True, eq=False)
class LoadContext:
    """One load job: the services its steps use, its progress, and what the steps have found out."""

    job: LoadJob
    services: LoadServices
    tracker: LoadTracker
    rpc: NodeRpc
    need: Need | None = None
    """What it was placed with; None when an earlier owner of the job placed it."""
    model: StoredModel | None = None
    """The revision that is being loaded, once it is placed."""
    replica_id: str | None = None
    started: bool = False
    """The node was asked to start the process, so a failure must stop it."""
    digest: str = ""
    """The build that the node was asked to start."""

    @property
    def stores(self) -> Stores:
        return self.services.stores

    @property
    def claims(self) -> LoadClaimStore:
        return self.services.stores.load_claims

    async def persist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Retries while the store is unavailable: the result of a step must not be lost. The fence rejects a write of
        a job that another frontend has taken over."""
        while True:
            try:
                return await write()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("load.write_failed", model=self.job.model, error=str(error))
                await asyncio.sleep(WRITE_AGAIN_S)


class LoadRun:
    """Runs one load while this frontend holds the lease of its job."""

    def __init__(self, job: LoadJob, services: LoadServices) -> None:
        tracker = LoadTracker(job, services.clock)
        rpc = NodeRpc(services, tracker)
        self._load = LoadContext(job=job, services=services, tracker=tracker, rpc=rpc, replica_id=job.replica_id)

    @property
    def model(self) -> str:
        return self._load.job.model

    def hear(self, message: InstallProgress) -> None:
        """Progress that the worker reports."""
        self._load.tracker.hear(message)

    async def run(self) -> None:
        load = self._load
        try:
            await self._run_leased()
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(RELEASE_WITHIN_S):
                    await load.claims.release(load.job)
            except (CorralError, TimeoutError) as error:  # then its lease expires
                log.info("load.release_failed", model=self.model, error=str(error))
            raise
        finally:
            await load.services.hint()

    async def _run_leased(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew_lease())
                try:
                    await self._run_steps()
                finally:
                    renewing.cancel()
        except* Fenced:
            await self._leave()
        except* Conflict as superseded:
            try:
                await self._supersede(str(superseded.exceptions[0]))
            except Fenced:
                await self._leave()

    async def _renew_lease(self) -> None:
        """Renews the lease and stores progress until cancelled. Raises Fenced, which ends the run, when another
        frontend has the job."""
        load = self._load
        stored = load.tracker.progress
        while True:
            await wait_or_timeout(load.tracker.changed, within_s=RENEW_S if load.tracker.progress == stored else 0.5)
            progress = load.tracker.progress
            try:
                if progress == stored:
                    await load.claims.renew(load.job, lease_s=LEASE_S)
                else:
                    await load.claims.note_progress(load.job, progress, lease_s=LEASE_S)
                    stored = progress
            except Exception as error:  # the next renewal shows whether the lease was kept
                if isinstance(error, Conflict) and not isinstance(error, StoreConflict):
                    raise
                unexpected = not isinstance(error, CorralError)
                log.warning("load.lease_not_renewed", model=self.model, error=str(error), exc_info=unexpected)

    async def _run_steps(self) -> None:
        load, job = self._load, self._load.job
        try:
            model = await read_model(load)
            if model is None:
                return
            placed = await place_replica(load, model)
            if placed is None:
                return
            replica, node = placed
            load.model, load.replica_id = model, replica.id
            paths = await stage_weights(load, model, replica, node)
            if not await check_fit(load, node):
                return
            await stop_predecessor(load, node)
            load.started = True
            loaded = await start_replica(load, model, replica, node, paths)
            await load.persist(lambda: load.claims.finish(job, loaded))
            log.info("load.ready", model=job.model, node=node.name, slot=replica.slot, after_ms=loaded.load_ms)
        except Fenced:
            raise
        except (NodeLost, BackendDeleted) as error:
            log.warning("load.rescheduled", model=job.model, node=job.node_name, error=str(error))
            await load.persist(lambda: load.claims.unplace(job, again_in_s=0.5))
        except StoreConflict as error:
            await self._fail(error)
        except Conflict as error:  # superseded by an edit, a deletion or an unload
            await self._supersede(str(error))
        except CorralError as error:
            await self._fail(error)
        except Exception as error:
            log.exception("load.crashed", model=job.model)
            await self._fail(Unavailable(f"internal error, see the log: {error!r}"))

    async def _fail(self, failure: CorralError) -> None:
        """After a LoadJobFailed another node may succeed, and is tried first."""
        load, error, draw = self._load, str(failure), self._load.services.ids.draw()
        job, here = load.job, isinstance(failure, LoadJobFailed)
        event = "load.failed_here" if here else "load.failed"
        log.warning(event, model=job.model, node=load.tracker.progress.node, error=error)
        await self._cancel()
        if here:
            stop, digest = load.started, load.digest
            await load.persist(lambda: load.claims.fail_here(job, error, draw=draw, stop=stop, digest=digest))
        else:
            delay_s = LOAD_RETRIES.delay_s(job.attempts + 1, draw)
            await load.persist(lambda: load.claims.fail(job, error, again_in_s=delay_s, stop=load.started))

    async def _supersede(self, why: str) -> None:
        load = self._load
        log.info("load.superseded", model=self.model, why=why)
        await self._cancel(keep=await self._needs_same_files())
        await load.persist(lambda: load.claims.give_up(load.job, why))

    async def _leave(self) -> None:
        """Another frontend has the job, or it is gone. The work on the node is cancelled only when nobody continues or
        has finished it."""
        load = self._load
        if await load.stores.load_jobs.is_there(load.job.id) or await self._was_finished():
            log.info("load.taken_over", model=self.model)
            return
        log.info("load.removed", model=self.model)
        await load.rpc.cancel(load.job.id, keep=await self._needs_same_files())

    async def _was_finished(self) -> bool:
        """A frontend that takes a load over keeps its replica."""
        rows = await self._load.stores.replicas.read_of_model(self.model)
        return any(row.id == self._load.replica_id and row.state is ReplicaState.READY for row in rows)

    async def _cancel(self, *, keep: bool = False) -> None:
        """Stops the work on the node under a lease that was just renewed, because the work of a successor has the same
        id. Raises Fenced when another frontend has the job. The result is stored afterwards: from then on a successor
        may use the same node. After a crash in between the lease expires, and the successor repeats the request."""
        load, clock = self._load, self._load.services.clock
        if load.tracker.node_id is None:
            return
        renewed_s = -LEASE_S
        while clock.monotonic_s() - renewed_s > LEASE_S - CANCEL_WITHIN_S:
            renewed_s = clock.monotonic_s()
            await load.persist(lambda: load.claims.hold(load.job, lease_s=LEASE_S))
        await load.rpc.cancel(load.job.id, keep=keep)

    async def _needs_same_files(self) -> bool:
        """Whether another load of the model could use the files that were staged so far."""
        try:
            model = await self._load.stores.models.read(self.model)
        except NotFound:
            return False
        begun = self._load.model
        return begun is None or plan_weights(model.config) == plan_weights(begun.config)


async def read_model(load: LoadContext) -> StoredModel | None:
    """The revision to load; None when the load is obsolete. The load of an edited model moves to the new revision."""
    job, claims = load.job, load.claims
    try:
        model = await load.stores.models.read(job.model)
    except NotFound:
        await load.persist(lambda: claims.give_up(job, "the model was deleted"))
        return None
    revision = model.of_revision(job.revision)
    unneeded = job.replaces is not None and job.stop_first_node is None and model.pending is None
    if revision is None and unneeded:
        await load.persist(lambda: claims.give_up(job, "the model was changed"))
    elif revision is None:
        newest = model.newest.revision if job.replaces is not None else model.revision
        await load.persist(lambda: claims.renew_revision(job, newest))
    return revision


async def place_replica(load: LoadContext, model: StoredModel) -> tuple[Replica, Node] | None:
    """Reserves a place. None when there is none now: the job waits, cools down or has failed."""
    job, stores = load.job, load.stores
    if job.replica_id is not None:
        kept = await _kept_place(load)
        if kept is None:
            await load.persist(lambda: load.claims.unplace(job, again_in_s=0.0))
        return kept
    for _ in range(PLACE_TRIES):
        fleet = await stores.replicas.read_fleet(load.services.traffic.total)
        # Only beside the replica it replaces; once that is gone, it is a replica like any other.
        surge_on = next((replica.node_id for replica in fleet.replicas if replica.id == job.replaces), None)
        need = await find_need(load.services, model, fleet, only_node=job.target_node, surge_on=surge_on)
        need = replace(need, replaces=job.replaces, backoffs=await stores.load_backoff.read(job.model, job.revision))
        decision = place(need, fleet.capacities)
        if isinstance(decision.outcome, Waiting):
            decision = _place_instead(load, need, fleet) or decision
        need, outcome = decision.need, decision.outcome
        load.need, load.tracker.weights_bytes = need, need.weights_bytes
        if need.instead_of is not None and await load.claims.must_wait_to_stop(job, fleet):
            await _wait(load, decision, OTHERS_FIRST_REASON)
            return None
        if isinstance(outcome, Waiting):
            await _postpone(load, fleet, decision, outcome)
            return None
        try:
            if outcome.evict:
                pending = await _evict(load, decision, outcome.node_id)
                if pending:
                    await _wait(load, decision, pending)
                    return None
                continue
            replica = await _reserve(load, decision)
        except (Fenced, StoreConflict):
            raise
        except Conflict:
            continue
        node = next(node for node in fleet.nodes if node.id == replica.node_id)
        load.tracker.show(LoadState.PENDING, node)
        return replica, node
    raise Unavailable(f"other loads took the capacity for {job.model} {PLACE_TRIES} times; it will be retried")


async def _kept_place(load: LoadContext) -> tuple[Replica, Node] | None:
    """The reservation of an earlier owner of the job, if it is still valid."""
    rows = [row for row in await load.stores.replicas.read_of_model(load.job.model) if row.id == load.job.replica_id]
    if not rows or rows[0].state not in COMING:
        return None
    try:
        node = await load.stores.nodes.read_one(rows[0].node_id)
    except NotFound:
        return None
    return None if node.status is NodeStatus.OFFLINE else (rows[0], node)


def _place_instead(load: LoadContext, need: Need, fleet: FleetView) -> Decision | None:
    """Where memory does not hold both, the replica to be replaced is stopped first."""
    old = next((row for row in fleet.replicas if row.id == load.job.replaces), None)
    if old is None or old.state not in (ReplicaState.READY, ReplicaState.DRAINING):
        return None
    return place_instead(need, fleet.capacities, old.id)


async def _reserve(load: LoadContext, decision: Decision) -> Replica:
    total, ids = load.services.traffic.total, load.services.ids
    return await load.persist(lambda: load.claims.reserve(load.job, decision.need, decision, total, ids=ids))


async def _postpone(load: LoadContext, fleet: FleetView, decision: Decision, outcome: Waiting) -> None:
    """No node can take it: the load fails, cools down, or waits for capacity."""
    job, until_ms, reason = load.job, outcome.until_ms, outcome.reason
    scheduling = fleet.scheduling.get(job.model)
    if job.target_node is not None and not (scheduling is not None and scheduling.spread_all):
        # Someone asked for this node and can choose another; a replica for every node is desired permanently.
        log.info("load.rejected", model=job.model, node=job.target_node, why=reason)
        await load.persist(lambda: load.claims.give_up(job, reason))
    elif until_ms is not None:
        cause = cause_of(decision.need.backoffs.values())
        log.warning("load.failed", model=job.model, error=cause, why=reason)
        await load.persist(lambda: load.claims.rest(job, decision, cause, until_ms=until_ms))
    else:
        await _wait(load, decision, reason)


async def _wait(load: LoadContext, decision: Decision, why: str) -> None:
    delay_s = LOAD_RETRIES.delay_s(load.job.attempts + 1, load.services.ids.draw())
    log.info("load.waits", model=load.job.model, why=why, again_in_s=delay_s)
    await load.persist(lambda: load.claims.wait(load.job, decision, why, again_in_s=delay_s))


async def _evict(load: LoadContext, decision: Decision, node_id: str) -> str:
    """Stops the replicas that the decision evicts. Returns why that takes longer; empty when they have ended."""
    stores, total = load.stores, load.services.traffic.total
    began_ms = await stores.nodes.now_ms()
    evicted = await load.persist(lambda: load.claims.evict(load.job, decision.need, decision, total))
    await load.services.hint()
    await load.services.stop_replicas(evicted)
    ids = {row.id for row in evicted}
    left = [row for row in await stores.replicas.read_of_node(node_id) if row.id in ids]
    if left:
        return f"{left[0].model} is being evicted and has not stopped yet: {left[0].stop_error or 'still stopping'}"
    if evicted:
        await _until_heartbeat(load, node_id, since_ms=began_ms)
    return ""


async def _until_heartbeat(load: LoadContext, node_id: str, *, since_ms: int) -> None:
    """A node reports free memory with its heartbeats; Corral's worker does so before it confirms that a process ended.
    By older figures one replica after another would be evicted."""
    until_s = load.services.clock.monotonic_s() + FREED_WITHIN_S
    while load.services.clock.monotonic_s() < until_s:
        try:
            node = await load.stores.nodes.read_one(node_id)
        except NotFound:
            return
        if (node.last_heartbeat or 0) > since_ms:
            return
        await asyncio.sleep(POLL_S)


async def check_fit(load: LoadContext, node: Node) -> bool:
    """The size of a model is known only after its first staging. If it does not fit after all, its place is released
    and it is placed by its size."""
    need, size = load.need, load.tracker.weights_bytes
    if need is None or size is None or need.memory_bytes(device_class(node)) is not None:
        return True
    # It has its place: only its size is in question.
    known = Need(
        model=need.model,
        groups=need.groups,
        weights_bytes=size,
        staged_on=frozenset({node.id}),
        surge_on=need.surge_on,
    )
    why = await load.persist(lambda: load.claims.enlarge(load.job, known, load.services.traffic.total))
    if why:
        log.info("load.does_not_fit", model=load.job.model, node=node.name, why=why)
        await load.persist(lambda: load.claims.unplace(load.job, again_in_s=0.0))
    return not why


async def stop_predecessor(load: LoadContext, node: Node) -> None:
    """Where memory holds only one of them, the replica to be replaced finishes its requests and stops. All files are
    staged by now, so requests wait only for the start."""
    job, clock = load.job, load.services.clock
    reserved = load.need is not None and load.need.instead_of is not None
    if job.replaces is None or not (reserved or job.stop_first_node is not None):
        return
    old = await load.persist(lambda: load.claims.stop_first(job, STOP_FIRST_REASON))
    if old is None:
        return
    log.info("load.stops_predecessor", model=job.model, node=node.name, replica=old.id)
    await load.services.hint()
    until_s = clock.monotonic_s() + STOPPED_WITHIN_S
    while left := await load.persist(lambda: _find_predecessor(load, node)):
        load.tracker.show(LoadState.PENDING, node, reason=STOP_FIRST_REASON)
        if clock.monotonic_s() > until_s:
            why = left.stop_error or f"the old replica did not stop within {STOPPED_WITHIN_S:.0f} s"
            raise Unavailable(f"{node.name} has too little memory for the old and new versions of {job.model}: {why}")
        await asyncio.sleep(POLL_S)


async def _find_predecessor(load: LoadContext, node: Node) -> Replica | None:
    rows = await load.stores.replicas.read_of_node(node.id)
    return next((row for row in rows if row.id == load.job.replaces), None)


async def stage_weights(load: LoadContext, model: StoredModel, replica: Replica, node: Node) -> Mapping[str, str]:
    """Brings the model's files to the node. Returns their absolute paths there, by name."""
    services, tracker = load.services, load.tracker
    plan = plan_weights(model.config)
    if not plan.files and not plan.names:
        return {}
    if not node.speaks_corral:
        return await _stage_on_localai(load, model, node, plan)
    borrowed: Mapping[str, tuple[ConfigFile, str]] = {}
    if not services.shared_models:
        borrowed = borrowed_files(model.config, [one.config for one in await load.stores.models.read_all()])
    plan = replace(plan, files=(*plan.files, *{file: None for file, _ in borrowed.values()}))
    files = () if services.shared_models else plan.files
    tracker.show(LoadState.STAGING, node)
    async with publishing_staging(tracker, services.bus, services.clock):
        tracker.note_staged(FileTransfer(files=len(files)))
        reply = await _fetch(load, model, replica, node, files, plan.names)
        tracker.end_transfer()
        if services.shared_models:
            _check_shared(plan, reply, node)
        else:
            await _check_same_names(load, model, borrowed, reply)
            reply = await _send(load, model, replica, node, plan, reply)
    size = tracker.weights_bytes = _size_of(plan, reply)
    names = sorted({*(file.filename for file in plan.files), *reply.found})
    staged_files = load.stores.staged_files
    await load.persist(lambda: staged_files.note_staged(node.id, model.name, model.revision, size, names))
    return by_configured_name(model.config, {name: found.path for name, found in reply.found.items()})


async def _stage_on_localai(load: LoadContext, model: StoredModel, node: Node, plan: WeightsPlan) -> Mapping[str, str]:
    """A LocalAI worker downloads nothing: this frontend downloads the files and sends them."""
    services, stager = load.services, load.services.localai_stager
    if stager is None:
        raise LoadJobFailed(f"this frontend cannot send files to {node.name}, which runs a LocalAI worker")
    load.tracker.show(LoadState.STAGING, node)
    stored = await load.stores.models.read_all()
    models = [one.config for one in stored]
    async with publishing_staging(load.tracker, services.bus, services.clock):
        try:
            if services.shared_models:
                found = await stager.find(node, plan.names)
            else:
                borrowed = borrowed_files(model.config, models)
                plan = replace(plan, files=(*plan.files, *{file: None for file, _ in borrowed.values()}))
                revisions = (*models, *(one.newest.config for one in stored))
                listed = [file for config in revisions for file in plan_weights(config).files]
                await stager.keep_only([*listed, *plan.files])
                found = await stager.stage(model.name, node, plan, load.tracker.note_staged)
        except CorralError as error:
            raise LoadJobFailed(f"{node.name} could not get the weights of {model.name}: {error}") from error
        load.tracker.end_transfer()
    reply = ModelFetchReply(success=True, found=dict(found))
    if services.shared_models:
        _check_shared(plan, reply, node)
    size = load.tracker.weights_bytes = _size_of(plan, reply)
    names = [] if services.shared_models else [model.name]  # the worker keeps them in a directory of that name
    staged_files = load.stores.staged_files
    await load.persist(lambda: staged_files.note_staged(node.id, model.name, model.revision, size, names))
    return by_configured_name(model.config, {name: found.path for name, found in reply.found.items()})


async def _fetch(
    load: LoadContext,
    model: StoredModel,
    replica: Replica,
    node: Node,
    files: Sequence[ConfigFile],
    paths: Sequence[str],
) -> ModelFetchReply:
    """The node downloads the files and reports which of the paths it has."""
    peers: list[BlobPeer] = []
    if files:  # nodes that have served the model are nearer than the origin
        staged = await load.stores.staged_files.read_staged(model.name)
        peers = await load.services.peers.among(staged.keys(), besides=node.id)
    request = ModelFetchRequest(
        model=model.name,
        files=[WeightsFile(file.filename, file.uri, file.sha256) for file in files],
        paths=list(paths),
        peers=peers,
        op_id=load.job.id,
        generation=replica.generation,
    )
    reply = decode(await load.rpc.ask(node, MODEL_FETCH, encode(request)), ModelFetchReply)
    if not reply.success:
        raise LoadJobFailed(f"{node.name} could not get the weights of {model.name}: {reply.error}")
    return reply


async def _check_same_names(
    load: LoadContext, model: StoredModel, borrowed: Mapping[str, tuple[ConfigFile, str]], reply: ModelFetchReply
) -> None:
    """A file here and another model's download may have the same name. If they differ, the configuration is
    ambiguous."""
    fetched = {file.filename: file.digest.removeprefix("sha256:") for file in reply.files}
    stager = load.services.stager
    for name, (file, owner) in borrowed.items():
        here = await stager.sha256_of(name) if stager is not None else None
        if here is not None and here != fetched.get(posixpath.normpath(name), here):
            raise InvalidInput(
                f"{name} in the frontend's models directory differs from the file that {owner!r} downloads under that"
                f" name ({file.uri}), so {model.name!r} is ambiguous. Rename the file there and in {model.name!r},"
                " or delete it to use the download"
            )


async def _send(
    load: LoadContext, model: StoredModel, replica: Replica, node: Node, plan: WeightsPlan, reply: ModelFetchReply
) -> ModelFetchReply:
    """Sends the files that are on this frontend's machine. A directory may be incomplete on the node, so it is always
    compared; a file may have been replaced since it was sent. Files that the node has downloaded stay: a file of the
    same name here is a different one."""
    stager = load.services.stager
    if stager is None:
        return reply
    present = [name for name in plan.names if name in reply.found and reply.found[name].size is not None]
    staged = (await load.stores.staged_files.read_staged(model.name)).get(node.id)
    changed = await stager.changed_since(present, staged.at_ms if staged is not None else 0)
    names = [
        name
        for name in plan.names
        if (name not in present or name in changed) and not (reply.files and plan.is_fetched(name))
    ]
    if not names:
        return reply
    try:
        left = await stager.stage(model.name, node, names, load.tracker.note_staged)
    except (Conflict, Unavailable) as error:  # a problem of the node or the file; the job itself has no conflict
        raise LoadJobFailed(str(error)) from error
    if left is None:
        return reply
    load.tracker.begin_second_leg()
    return await _fetch(load, model, replica, node, left, plan.names)


def _check_shared(plan: WeightsPlan, reply: ModelFetchReply, node: Node) -> None:
    missing = [name for name in plan.paths if name not in reply.found]
    if missing:
        raise LoadJobFailed(
            f"{', '.join(missing)} is not in the models directory of {node.name}, which is configured as shared"
        )


def _size_of(plan: WeightsPlan, reply: ModelFetchReply) -> int | None:
    """Of all files of the model; unknown when one of them is a directory."""
    sizes: dict[str, int | None] = {file.filename: file.size for file in reply.files}
    sizes |= {name: found.size for name, found in reply.found.items()}
    known = [size for size in sizes.values() if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


async def start_replica(
    load: LoadContext, model: StoredModel, replica: Replica, node: Node, paths: Mapping[str, str]
) -> ReplicaLoaded:
    """Installs the backend if it is missing, starts the process, and loads the model into it."""
    services = load.services
    began_s = services.clock.monotonic_s()
    backend = backend_of(model.config)
    await _check_not_deleted(load, backend, node)
    resolved = await _find_build(load, backend, node)
    build = resolved.build if isinstance(resolved, ResolvedBackend) else None
    engine = plan_engine(model.config, paths)
    load.digest = resolved.digest if isinstance(resolved, ObservedBackend) else resolved.build.digest
    request = InstallRequest(backend=backend, model_id=model.name, replica_index=replica.slot, op_id=load.job.id)
    if node.speaks_corral:
        peers = await services.peers.find(build.digest if build is not None else None, besides=node.id)
        extras = _extras(build, engine, peers, files=_files_of(model), generation=replica.generation)
        request = msgspec.structs.replace(request, corral=extras)
    else:
        load.tracker.least_window_s = LOCALAI_INSTALL_S
        galleries = services.builds.galleries_text(backend)
        request = msgspec.structs.replace(request, backend=plain_name(backend), backend_galleries=galleries)
    reply = decode(await load.rpc.ask(node, BACKEND_INSTALL, encode(request)), InstallReply)
    load.tracker.least_window_s = 0.0
    if not reply.success:
        await _check_not_deleted(load, backend, node)
        raise LoadJobFailed(f"{node.name} could not start {model.name}: {reply.error}")
    process = reply.corral or StartedProcess(backend=_installed_name(resolved), digest=load.digest)
    if build is not None:
        await _record_install(load, backend, build, node)
    protocol = process.protocol or LOCALAI_GRPC
    running = replace(replica, address=reply.address or node.address, protocol=protocol, token=process.token or "")
    await _check_address(running.address, node)
    if protocol == LOCALAI_GRPC:
        load.tracker.show(LoadState.LOADING, node)
        await _load_grpc(load, model, running, node, paths)
    return ReplicaLoaded(
        address=running.address,
        protocol=protocol,
        token=running.token,
        process_key=process.process_key or f"{model.name}#{replica.slot}",
        backend=process.backend or backend,
        backend_digest=process.digest,
        epoch=node.epoch,
        pid=process.pid,
        capacity=capacity_of(model.config, engine.slots if protocol == OPENAI else None),
        load_options=msgspec.json.encode(engine).decode(),
        load_ms=int((services.clock.monotonic_s() - began_s) * 1000),
        device=device_class(node),
    )


def _installed_name(resolved: ResolvedBackend | ObservedBackend) -> str:
    return resolved.name if isinstance(resolved, ObservedBackend) else resolved.build.name


async def _check_not_deleted(load: LoadContext, backend: str, node: Node) -> None:
    """A deletion that is newer than the placement wins. The load does not reinstall the backend, and has not failed."""
    deletion = (await find_deletions(load.services, backend, [node])).get(node.id)
    if deletion is not None:
        raise BackendDeleted(deletion.reason)


async def _find_build(load: LoadContext, backend: str, node: Node) -> ResolvedBackend | ObservedBackend:
    """An installed backend is used as it is: a load never upgrades."""
    installed = await load.stores.observed.read_backends([NodeId(node.id)])
    found = find_backend(installed.get(node.id, ()), backend)
    if found is not None:
        load.tracker.show(LoadState.LOADING, node, reason=STARTING)
        return found
    load.tracker.show(LoadState.INSTALLING, node)
    build = (await load.services.builds.recall(backend, [node]))[node.id]
    if isinstance(build, Unfit):
        raise LoadJobFailed(f"no build of {backend} fits {node.name}: {build.reason}")
    if isinstance(build, Unresolved):
        raise LoadJobFailed(f"{backend} is not installed on {node.name} and cannot be looked up now: {build.error}")
    return build


async def _record_install(load: LoadContext, backend: str, build: BuildRef, node: Node) -> None:
    """As an operation of its own, so that the node's history shows it."""
    try:
        await load.stores.operations.note_install(
            load.services.ids.uuid(),
            backend=backend,
            node_id=node.id,
            node_name=node.name,
            variant=build.name,
            digest=build.digest,
            cause=f"load of {load.job.model}",
        )
    except CorralError as error:  # the load itself has succeeded so far
        log.warning(
            "load.install_not_recorded", model=load.job.model, backend=backend, node=node.name, error=str(error)
        )


async def _load_grpc(
    load: LoadContext, model: StoredModel, replica: Replica, node: Node, paths: Mapping[str, str]
) -> None:
    if load.services.grpc is None:
        raise LoadJobFailed(f"{model.name} needs a gRPC backend, and this frontend has no gRPC support")
    try:
        await load.services.grpc.load(model.config, replica, paths=paths, within_s=load.tracker.window_s)
    except InvalidInput:
        raise
    except CorralError as error:
        raise LoadJobFailed(f"{node.name} could not load {model.name}: {error}") from error


async def _check_address(address: str, node: Node) -> None:
    """Requests are sent there, with their prompts: it must not be this machine or an address that is no machine."""
    try:
        await check_reach(address, told_from=node.registered_from, what="the address of the process")
    except (InvalidInput, Unavailable) as error:
        raise LoadJobFailed(f"{node.name} reported an address that cannot be its own: {error}") from error


def _files_of(model: StoredModel) -> list[str]:
    """All files of the models directory that the process may read."""
    plan = plan_weights(model.config)
    return sorted({*plan.names, *(file.filename for file in plan.files)})


def _extras(
    build: BuildRef | None, engine: EngineStart, peers: list[BlobPeer], *, files: list[str], generation: int
) -> CommandExtras:
    start = StartOptions(
        model=engine.model,
        model_name=engine.model_name,
        context=engine.context,
        slots=engine.slots,
        embeddings=engine.embeddings,
        files=files,
        generation=generation,
    )
    if build is None:
        return CommandExtras(start=msgspec.structs.replace(start, soft_options=dict(engine.options)))
    manifest: Any = msgspec.json.decode(build.manifest) if build.manifest else {}
    known = manifest.get("options") or ()
    options = {name: value for name, value in engine.options.items() if name in known}
    return CommandExtras(
        build=build,
        start=msgspec.structs.replace(start, options=options),
        peers=peers or None,
    )
