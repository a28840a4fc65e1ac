"""Orders that lose their holder, their answer or their store in the middle, with workers simulated on a real bus."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from controller.backends.test_intent_controller import LIMITS, Connect, Worker, controlling, only, until
from corral.bus.client import BusMessage
from corral.bus.subjects import node_subject
from corral.controller.backends.attempts import AttemptLimits
from corral.controller.backends.intent_controller import IntentReconciler
from corral.controller.replicas.smoke_test import Restored, RolloutStalled, VersionFailed, VersionRollout
from corral.core.backends.build import BuildRef
from corral.core.backends.intents import DONE_BEFORE_CANCEL, BackendSpec, RetryLimits, Verb
from corral.core.backends.operations import Operation
from corral.core.backends.rollout import ReplicaChange
from corral.core.errors import InvalidInput, Unavailable
from corral.core.nodes.node import Node, NodeId
from corral.store.backends.intents import IntentStore, Result
from corral.store.stores import Stores
from harness.databases import Rig, kind, rig
from harness.fleet_store import admission, healthy
from harness.waiting import wait_until_async

__all__ = ["kind", "rig"]

PATIENT = AttemptLimits(install_s=900, upgrade_s=900, retry=LIMITS.retry)
SERVING = {
    "process_key": "m#0", "model_id": "m", "replica_index": 0, "backend": "echo", "digest": "sha256:old",
    "protocol": "localai-grpc", "state": "ready",
}  # fmt: skip
UPGRADED = {**SERVING, "digest": "sha256:new"}


@pytest.fixture
async def stores(rig: Rig) -> Stores:
    """With real time: leases run out and retries come due by themselves."""
    database = await rig.open()
    await database.migrate()
    return Stores(database)


class ScriptedRollout:
    """Ends as it is told, one call after another; the last one for good."""

    def __init__(self, *ends: Exception | None) -> None:
        self._ends = list(ends)
        self.calls = 0
        self.when_rolled_out: Callable[[], None] = lambda: None

    async def roll_out(
        self,
        node_id: NodeId,
        changes: Sequence[ReplicaChange],
        *,
        backend: str,
        digest: str,
        operation_id: str,
        models: Collection[str] = (),
    ) -> None:
        self.calls += 1
        end = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        if end is not None:
            raise end
        self.when_rolled_out()

    async def note_stopped(self, node_id: NodeId, process_keys: Sequence[str]) -> None:
        raise AssertionError("only LocalAI's workers stop processes unasked")

    async def find_models(self, families: Collection[str]) -> frozenset[str]:
        return frozenset()

    async def find_stopped(self, node_id: NodeId, backend: str, models: Collection[str] = ()) -> str | None:
        return None

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        return Restored()


async def finished(stores: Stores, job: str, *, within_s: float = 30.0) -> Operation:
    async def look() -> Operation | None:
        operation = await stores.operations.read_one(job)
        return operation if operation.finished_at is not None else None

    return await wait_until_async(look, what="the operation has ended", within_s=within_s)


async def start_worker(stores: Stores, connect: Connect, name: str = "a") -> tuple[Node, Worker]:
    node = await healthy(stores, name)
    worker = Worker(await connect(f"node-{name}"), node)
    await worker.serve_reports()
    return node, worker


class Slow:
    """An install that takes until it is let go, and a cancel that ends it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.go = asyncio.Event()
        self.running = 0

    async def install(self, request: dict[str, Any]) -> dict[str, Any]:
        self.running += 1
        await self.go.wait()
        self.running -= 1
        return await self._worker.install(request)

    async def cancel(self, _request: dict[str, Any]) -> dict[str, Any]:
        return {"cancelled": self.running}


async def test_a_frontend_that_lost_its_claim_leaves_its_successors_work_alone(
    stores: Stores, connect: Connect, rig: Rig
) -> None:
    node, worker = await start_worker(stores, connect)
    slow = Slow(worker)
    await worker.serve("backend.install", slow.install)
    await worker.serve("corral.cancel", slow.cancel)
    async with controlling(stores, await connect("fe"), PATIENT) as first:
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await until(stores, job, "downloading")
        await wait_until_async(lambda: _count(worker, "backend.install", 1), what="the first one asks")
        rig.run_sql("UPDATE intents SET lease_until = 9999999999999, claim_token = 'another', fence = fence + 1")
        await wait_until_async(lambda: _let_go(first), what="the first one has found out that it lost its claim")
        rig.run_sql("UPDATE intents SET lease_until = 0")
        await wait_until_async(lambda: _count(worker, "backend.install", 2), what="the next holder asks")
        slow.go.set()
        done = await until(stores, job, "success")
    assert (only(done).attempts, done.state.value) == (0, "completed")
    assert "corral.cancel" not in worker.verbs()


async def _let_go(controller: IntentReconciler) -> bool:
    controller.loop.notify()
    return not controller.holds_any


async def _count(worker: Worker, verb: str, count: int) -> bool:
    return worker.verbs().count(verb) >= count


async def test_a_cancel_that_nobody_requested_leads_to_a_retry(stores: Stores, connect: Connect) -> None:
    node, worker = await start_worker(stores, connect)

    async def stopped_at_first(request: dict[str, Any]) -> dict[str, Any]:
        if len(worker.asked) == 1:
            return {"success": False, "error": "cancelled by request", "code": "cancelled"}
        return await worker.install(request)

    await worker.serve("backend.install", stopped_at_first)
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        done = await until(stores, job, "success")
    assert (only(done).attempts, done.state.value) == (1, "completed")


async def test_a_cancel_is_repeated_until_the_worker_has_replied(stores: Stores, connect: Connect) -> None:
    """Of an intent past its time-out, whose worker is busy with it all the while."""
    node, worker = await start_worker(stores, connect)
    slow = Slow(worker)

    async def cancel(_request: dict[str, Any]) -> dict[str, Any]:
        told = worker.verbs().count("corral.cancel")
        if told <= 2:
            await asyncio.sleep(3600)
        return {"cancelled": 1 if told == 3 else 0}

    await worker.serve("backend.install", slow.install)
    await worker.serve("corral.cancel", cancel)
    async with controlling(stores, await connect("fe"), replace(LIMITS, cancel_s=0.3)) as controller:
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await until(stores, job, "running_on_worker")
        await stores.operations.cancel(job, actor="me")
        controller.loop.notify()
        ended = await finished(stores, job)
    assert (ended.state.value, only(ended).status.value) == ("cancelled", "cancelled")
    assert worker.verbs().count("corral.cancel") >= 4, "lost twice, heard once, and then nothing was running"
    requests = [request for verb, request in worker.asked if verb == "corral.cancel"]
    assert {request["op_id"] for request in requests} == {job}
    assert all(request["keep"] for request in requests), "a retry goes on with what was downloaded"


async def test_what_the_worker_had_finished_before_the_cancel_is_shown_as_done(
    stores: Stores, connect: Connect
) -> None:
    node, worker = await start_worker(stores, connect)
    slow = Slow(worker)
    await worker.serve("backend.install", slow.install)
    await worker.serve("corral.cancel", slow.cancel)
    async with controlling(stores, await connect("fe")) as controller:
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await until(stores, job, "running_on_worker")
        slow.go.set()
        await wait_until_async(lambda: _has(worker), what="the worker is done, and has told nobody")
        await stores.operations.cancel(job, actor="me")
        controller.loop.notify()
        ended = await finished(stores, job)
    assert (ended.state.value, only(ended).status.value) == ("completed", "success")


async def _has(worker: Worker) -> bool:
    return "echo" in worker.installed


async def test_a_node_that_was_offline_when_its_intent_was_cancelled_is_told_when_it_is_back(
    stores: Stores, connect: Connect, rig: Rig
) -> None:
    node = await healthy(stores, "a")
    bus = await connect("node")
    worker = Worker(bus, node)
    slow = Slow(worker)
    await worker.serve("backend.install", slow.install)
    async with controlling(stores, await connect("fe")) as controller:
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await until(stores, job, "running_on_worker")
        rig.run_sql("UPDATE nodes SET presence = 'gone'")
        await stores.operations.cancel(job, actor="me")  # nobody listens for a cancel yet
        controller.loop.notify()
        ended = await finished(stores, job)
        assert ended.state.value == "cancelled"
        assert "sent to its worker when the node is back online" in only(ended).error
    async with controlling(stores, await connect("fe2")):  # whichever frontend is there by then
        await worker.serve_reports()
        await worker.serve("corral.cancel", slow.cancel)
        rig.run_sql("UPDATE nodes SET presence = 'live'")
        await wait_until_async(lambda: _count(worker, "corral.cancel", 1), what="the worker is told")
        slow.go.set()
        await wait_until_async(lambda: _none_to_stop(stores), what="it has answered that nothing runs", within_s=20)


async def _none_to_stop(stores: Stores) -> bool:
    return not await stores.intents.read_stops()


async def test_the_worker_is_told_of_a_superseded_intent_though_its_holder_died(
    stores: Stores, connect: Connect
) -> None:
    node, worker = await start_worker(stores, connect)
    slow = Slow(worker)
    await worker.serve("backend.install", slow.install)
    await worker.serve("corral.cancel", slow.cancel)
    async with controlling(stores, await connect("fe"), PATIENT):
        old = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await until(stores, old, "downloading")
        await wait_until_async(lambda: _count(worker, "backend.install", 1), what="it is asked for")
    await stores.admission.admit(admission(Verb.INSTALL, node))
    async with controlling(stores, await connect("fe2"), PATIENT):
        await wait_until_async(lambda: _count(worker, "corral.cancel", 1), what="the worker is told")
    assert {request["op_id"] for verb, request in worker.asked if verb == "corral.cancel"} == {old}


@asynccontextmanager
async def upgrading(
    stores: Stores, connect: Connect, rollout: VersionRollout, limits: AttemptLimits, *, delay_s: float = 0.0
) -> AsyncIterator[tuple[str, Worker]]:
    """A node on which an old version serves, and a worker that upgrades and goes back as it is told."""
    node, worker = await start_worker(stores, connect)
    worker.installed["echo"] = {"digest": "sha256:old"}
    worker.processes = [SERVING]

    async def upgrade(request: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(delay_s)
        await worker.install(request)
        worker.applied["echo"] = request["corral"]["generation"]
        await worker.tell()
        return {"success": True}

    async def rollback(request: dict[str, Any]) -> dict[str, Any]:
        if worker.refuses:
            return {"success": False, "error": worker.refuses}
        worker.installed["echo"] = {"digest": request["to"]}
        if request.get("undo"):
            worker.applied.pop("echo", None)
        return {"success": True}

    await worker.serve("backend.upgrade", upgrade)

    async def cancel(_request: dict[str, Any]) -> dict[str, Any]:
        return {"cancelled": 0}

    async def smoke_test(_request: dict[str, Any]) -> dict[str, Any]:
        return {"success": True, "tried": True, "detail": "its health check answered"}

    await worker.serve("corral.backend.rollback", rollback)
    await worker.serve("corral.backend.smoke_test", smoke_test)
    await worker.serve("corral.cancel", cancel)
    async with controlling(stores, await connect("fe"), limits, replicas=rollout):
        yield (await stores.admission.admit(admission(Verb.UPGRADE, node))).id, worker


async def test_a_store_that_does_not_answer_during_the_rollout_rolls_nothing_back(
    stores: Stores, connect: Connect
) -> None:
    rollout = ScriptedRollout(Unavailable("the store does not answer"), Unavailable("the store does not answer"), None)
    async with upgrading(stores, connect, rollout, PATIENT) as (job, worker):
        done = await finished(stores, job)
    assert (done.state.value, only(done).attempts, rollout.calls) == ("completed", 0, 3)
    assert "corral.backend.rollback" not in worker.verbs()
    assert worker.verbs().count("backend.upgrade") == 1, "it is taken up again where it was"


@pytest.mark.parametrize("moved", [True, False])
async def test_a_version_that_no_process_runs_after_the_rollout_is_started_once(
    stores: Stores, connect: Connect, moved: bool
) -> None:
    """The successor of a replica may be placed on another node."""
    rollout = ScriptedRollout(Unavailable("the store does not answer"), None)
    async with upgrading(stores, connect, rollout, PATIENT) as (job, worker):
        rollout.when_rolled_out = lambda: setattr(worker, "processes", [] if moved else [UPGRADED])
        done = await finished(stores, job)
    assert done.state.value == "completed"
    assert ("corral.backend.smoke_test" in worker.verbs()) is moved


async def test_an_upgrade_past_its_time_out_to_a_version_that_does_not_start_fails_and_is_rolled_back(
    stores: Stores, connect: Connect
) -> None:
    rollout = ScriptedRollout(VersionFailed("the engine is on fire"))
    async with upgrading(stores, connect, rollout, LIMITS, delay_s=1.0) as (job, worker):
        await until(stores, job, "running_on_worker")
        ended = await finished(stores, job, within_s=60)
    assert (ended.state.value, only(ended).attempts) == ("failed", 3)
    assert "the engine is on fire" in only(ended).error
    assert worker.installed["echo"]["digest"] == "sha256:old"
    assert "echo" not in worker.applied, "what was taken back was not carried out"


async def test_an_upgrade_past_its_time_out_is_rolled_out_before_it_is_done(stores: Stores, connect: Connect) -> None:
    rollout = ScriptedRollout(None)
    limits = AttemptLimits(install_s=0.5, upgrade_s=0.5, retry=RetryLimits(attempts=3, base_s=60, cap_s=60))
    async with upgrading(stores, connect, rollout, limits, delay_s=1.0) as (job, _):
        await until(stores, job, "running_on_worker")
        done = await finished(stores, job)
    assert (done.state.value, rollout.calls) == ("completed", 1)


async def test_a_report_from_an_earlier_attempt_settles_nothing(stores: Stores, connect: Connect) -> None:
    """A worker of the version before notes the generation of an upgrade that was taken back."""
    node, worker = await start_worker(stores, connect)
    worker.installed["echo"] = {"digest": ""}  # as of what came from a plain address
    go = asyncio.Event()

    async def upgrade(request: dict[str, Any]) -> dict[str, Any]:
        if len(worker.asked) == 1:
            worker.applied["echo"] = request["corral"]["generation"]
            worker.installed["echo"]["generation"] = request["corral"]["generation"]
            await worker.tell()
            return {"success": False, "error": "the new version does not start"}
        await go.wait()
        return {"success": False, "error": "nor does it now"}

    await worker.serve("backend.upgrade", upgrade)
    async with controlling(stores, await connect("fe"), PATIENT):
        job = (await stores.admission.admit(admission(Verb.UPGRADE, node))).id
        await wait_until_async(lambda: _count(worker, "backend.upgrade", 2), what="it is tried again")
        for _ in range(15):
            await worker.tell()
            await asyncio.sleep(0.1)
        shown = only(await stores.operations.read_one(job))
        assert (shown.status.value, shown.attempts) == ("downloading", 1), "the second attempt is still under way"
        go.set()
        assert (await finished(stores, job)).state.value == "failed"


@pytest.mark.parametrize("answer", [b"\xff not JSON", b'{"success": false, "error": "no \\u0000 such file"}'])
async def test_unforeseen_replies_are_failures_that_end(stores: Stores, connect: Connect, answer: bytes) -> None:
    node, _ = await start_worker(stores, connect)
    other, well = await start_worker(stores, connect, "b")
    bus = await connect("strange")

    async def handle(_message: BusMessage) -> bytes:
        return answer

    await bus.serve(node_subject(node.id, "backend.install"), handle, concurrency=8)
    await well.serve("backend.install", well.install)
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.INSTALL, node, other))).id
        ended = await finished(stores, job)
    nodes = {shown.node_name: shown for shown in ended.nodes}
    assert (nodes["a"].status.value, nodes["a"].attempts, nodes["b"].status.value) == ("error", 3, "success")
    assert nodes["a"].error
    assert ended.state.value == "failed"


class Recording(IntentStore):
    """The real intents, except that results are written as the test says."""

    def __init__(self, intents: IntentStore, *fails: Exception) -> None:
        super().__init__(intents._database)
        self._fails = list(fails)
        self.records = 0
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def record(self, results: Sequence[Result]) -> set[str]:
        self.records += 1
        self.begun.set()
        await self.go.wait()
        if self._fails:
            raise self._fails.pop(0)
        return await super().record(results)


@pytest.mark.parametrize("error", [InvalidInput("it does not fit"), RuntimeError("nobody thought of this")])
async def test_a_result_that_cannot_be_written_delays_no_other(
    stores: Stores, connect: Connect, error: Exception
) -> None:
    """Whichever error it is, and also where it cannot be written that it cannot be."""
    node, worker = await start_worker(stores, connect)
    other, well = await start_worker(stores, connect, "b")
    await worker.serve("backend.install", worker.install)
    await well.serve("backend.install", well.install)
    intents = Recording(stores.intents, error, error, error)
    async with controlling(stores, await connect("fe"), PATIENT, intents=intents):
        first = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await wait_until_async(lambda: _has_recorded(intents, 3), what="its result was tried three times")
        second = (await stores.admission.admit(admission(Verb.INSTALL, other))).id
        assert (await finished(stores, second)).state.value == "completed"
        assert (await finished(stores, first)).state.value == "completed", "it is given anew when its claim runs out"


async def _has_recorded(intents: Recording, count: int) -> bool:
    return intents.records >= count


async def test_a_result_that_nobody_waits_for_any_more_stops_no_other(
    stores: Stores, connect: Connect, rig: Rig
) -> None:
    """Our own claim ran out while its result was being written, and was made anew from here."""
    node, worker = await start_worker(stores, connect)
    await worker.serve("backend.install", worker.install)
    intents = Recording(stores.intents, InvalidInput("it does not fit"))
    intents.go.clear()
    async with controlling(stores, await connect("fe"), PATIENT, intents=intents) as controller:
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await asyncio.wait_for(intents.begun.wait(), 20)
        await asyncio.to_thread(rig.run_sql, "UPDATE intents SET lease_until = 0, due_at = 0")
        controller.loop.notify()
        await wait_until_async(lambda: _count(worker, "backend.install", 2), what="the intent is given anew")
        intents.go.set()
        assert (await finished(stores, job)).state.value == "completed"


class Hanging:
    """A rollout that takes for ever, with a replica stopped for it or without."""

    def __init__(self, stopped: str | None = None) -> None:
        self._stopped = stopped
        self.begun, self.left = asyncio.Event(), asyncio.Event()
        self.restored: list[tuple[str, bool]] = []

    async def roll_out(
        self,
        node_id: NodeId,
        changes: Sequence[ReplicaChange],
        *,
        backend: str,
        digest: str,
        operation_id: str,
        models: Collection[str] = (),
    ) -> None:
        self.begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.left.set()

    async def note_stopped(self, node_id: NodeId, process_keys: Sequence[str]) -> None:
        raise AssertionError("only LocalAI's workers stop processes unasked")

    async def find_models(self, families: Collection[str]) -> frozenset[str]:
        return frozenset()

    async def find_stopped(self, node_id: NodeId, backend: str, models: Collection[str] = ()) -> str | None:
        return self._stopped

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        self.restored.append((digest, wait))
        return Restored("the old one is being started again", was_stopped=True) if self._stopped else Restored()


@pytest.mark.parametrize("limits", [PATIENT, LIMITS], ids=["answered", "in-the-background"])
@pytest.mark.parametrize("stopped", [None, "sha256:old"], ids=["beside", "stopped-first"])
async def test_a_cancel_ends_a_rollout_at_once_and_reverts_the_version(
    stores: Stores, connect: Connect, limits: AttemptLimits, stopped: str | None
) -> None:
    rollout = Hanging(stopped)
    async with upgrading(stores, connect, rollout, limits, delay_s=1.0) as (job, worker):
        await asyncio.wait_for(rollout.begun.wait(), 30)
        if stopped:
            worker.processes = []
        await stores.operations.cancel(job, actor="me")
        ended = await finished(stores, job, within_s=10)
    assert rollout.left.is_set()
    assert (ended.state.value, only(ended).status.value) == ("cancelled", "cancelled")
    assert worker.installed["echo"]["digest"] == "sha256:old"
    assert "echo" not in worker.applied, "what was taken back was not carried out"
    assert rollout.restored == [("sha256:old", False)], "nobody waits for what serves again"
    expected = "the old one is being started again" if stopped else "keeps serving"
    assert "the node was rolled back to sha256:old" in only(ended).error
    assert expected in only(ended).error


class Failing(Hanging):
    """A version that does not start, and one before it that takes for ever to serve again."""

    async def roll_out(
        self,
        node_id: NodeId,
        changes: Sequence[ReplicaChange],
        *,
        backend: str,
        digest: str,
        operation_id: str,
        models: Collection[str] = (),
    ) -> None:
        raise VersionFailed("the engine is on fire")

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        if wait:
            self.restored.append((digest, wait))
            self.begun.set()
            await asyncio.sleep(3600)
        return await super().restore(node_id, backend=backend, digest=digest, wait=wait)


async def test_a_cancel_while_the_version_before_is_started_again_leaves_nothing_stopped(
    stores: Stores, connect: Connect
) -> None:
    rollout = Failing("sha256:old")
    async with upgrading(stores, connect, rollout, PATIENT) as (job, worker):
        await asyncio.wait_for(rollout.begun.wait(), 30)
        await stores.operations.cancel(job, actor="me")
        ended = await finished(stores, job, within_s=10)
    assert (ended.state.value, worker.installed["echo"]["digest"]) == ("cancelled", "sha256:old")
    assert rollout.restored == [("sha256:old", True), ("sha256:old", False)], "whatever became of the first"
    assert "the old one is being started again" in only(ended).error
    assert "the engine is on fire" in only(ended).error


async def test_a_cancelled_rollout_whose_worker_cannot_roll_back_states_what_is_installed(
    stores: Stores, connect: Connect
) -> None:
    rollout = Hanging()
    async with upgrading(stores, connect, rollout, PATIENT) as (job, worker):
        await asyncio.wait_for(rollout.begun.wait(), 30)
        worker.refuses = "that version is gone"
        await stores.operations.cancel(job, actor="me")
        ended = await finished(stores, job, within_s=10)
    assert (ended.state.value, worker.installed["echo"]["digest"]) == ("cancelled", "sha256:new")
    assert "sha256:new is installed and rolled out" in only(ended).error
    assert "that version is gone" in only(ended).error


async def test_a_rollout_that_cannot_be_made_fails_with_its_cause_and_rolls_nothing_back(
    stores: Stores, connect: Connect
) -> None:
    rollout = ScriptedRollout(RolloutStalled("replicas still run from the old version after 900 s: there is no room"))
    async with upgrading(stores, connect, rollout, PATIENT) as (job, worker):
        ended = await finished(stores, job)
    assert (ended.state.value, only(ended).attempts, rollout.calls) == ("failed", 3, 3)
    assert "there is no room" in only(ended).error
    assert "corral.backend.rollback" not in worker.verbs()


@pytest.mark.parametrize("verb", [Verb.DELETE, Verb.ROLLBACK])
async def test_a_cancelled_delete_or_rollback_that_the_worker_finishes_anyway_is_taken_back(
    stores: Stores, connect: Connect, verb: Verb
) -> None:
    """Past its time-out, and of a kind that is not stopped half-way."""
    node, worker = await start_worker(stores, connect)
    worker.installed["echo"] = {"digest": "sha256:new"}
    go, running = asyncio.Event(), [0]

    async def change(request: dict[str, Any]) -> dict[str, Any]:
        running[0] += 1
        await go.wait()
        if verb is Verb.DELETE:
            worker.installed.clear()
            worker.applied["echo"] = request["corral"]["generation"]
        else:
            worker.installed["echo"] = {"digest": request["to"], "generation": request["generation"]}
        running[0] -= 1
        return {"success": True}

    async def cancel(_request: dict[str, Any]) -> dict[str, Any]:
        return {"cancelled": 0, "in_progress": running[0]}

    await worker.serve("backend.delete" if verb is Verb.DELETE else "corral.backend.rollback", change)
    await worker.serve("corral.cancel", cancel)
    hasty = replace(LIMITS, delete_s=0.3, rollback_s=0.3)
    async with controlling(stores, await connect("fe"), hasty) as controller:
        job = (
            await stores.admission.admit(
                admission(
                    verb, node, spec=BackendSpec(reference="echo", build=BuildRef(name="echo", digest="sha256:old"))
                )
            )
        ).id
        await until(stores, job, "running_on_worker")
        await stores.operations.cancel(job, actor="me")
        controller.loop.notify()
        await wait_until_async(lambda: _count(worker, "corral.cancel", 2), what="the worker is told")
        assert (await stores.operations.read_one(job)).finished_at is None, "it is not over"
        go.set()
        ended = await finished(stores, job)
    assert (ended.state.value, only(ended).status.value) == ("cancelled", "cancelled")
    assert only(ended).error == DONE_BEFORE_CANCEL
    asked = next(request for kind, request in worker.asked if kind != "corral.cancel")
    assert job in (asked.get("op_id"), asked.get("corral", {}).get("op_id")), "the worker knows whose it is"
