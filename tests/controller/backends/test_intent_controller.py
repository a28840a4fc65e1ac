"""One intent against simulated workers on a real bus, in both databases: every way an attempt can end."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from corral.bus.client import Bus, BusMessage
from corral.bus.subjects import node_subject
from corral.controller.backends.attempts import AttemptLimits
from corral.controller.backends.intent_controller import IntentReconciler
from corral.controller.backends.peers import BlobPeers
from corral.controller.backends.progress import SAVE_EVERY_S, LiveProgress
from corral.controller.loop import Reconciler
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.controller.nodes.reports import Reports
from corral.controller.replicas.smoke_test import SmokeTest, VersionRollout
from corral.core.backends.build import BuildRef
from corral.core.backends.intents import BackendSpec, RetryLimits, Verb
from corral.core.backends.operations import NodeProgress, Operation
from corral.core.nodes.node import Node
from corral.store.backends.intents import IntentStore
from corral.store.stores import Stores
from corral.system import SystemClock, SystemIds
from corral.telemetry.metrics import MetricRegistry
from harness.databases import kind, rig
from harness.fleet_store import admission, healthy
from harness.localai_reporter import make_reporter
from harness.reconcile import make_runtime
from harness.waiting import wait_until_async

__all__ = ["kind", "rig"]

Connect = Callable[..., Awaitable[Bus]]
LIMITS = AttemptLimits(install_s=0.5, upgrade_s=0.5, retry=RetryLimits(attempts=3, base_s=0.05, cap_s=0.05))


@pytest.fixture
async def stores(rig: Any) -> Stores:
    """With real time: retries come due by themselves."""
    database = await rig.open()
    await database.migrate()
    return Stores(database)


class Worker:
    """The bus end of a worker. `behave` says what it does with a request."""

    def __init__(self, bus: Bus, node: Node) -> None:
        self._bus, self._node = bus, node
        self.installed: dict[str, dict[str, Any]] = {}
        self.processes: list[dict[str, Any]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._sequence = 0
        self.epoch = 1
        self.applied: dict[str, int] = {}
        self.refuses = ""
        """Why it does not go back."""

    async def serve(self, verb: str, behave: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
        async def handle(message: BusMessage) -> bytes:
            request = json.loads(message.data)
            self.asked.append((verb, request))
            return json.dumps(await behave(request)).encode()

        await self._bus.serve(node_subject(self._node.id, verb), handle, concurrency=8)

    async def serve_reports(self) -> None:
        async def report(_message: BusMessage) -> bytes:
            return json.dumps(self.report()).encode()

        await self._bus.serve(node_subject(self._node.id, "corral.report.now"), report, concurrency=8)

    def report(self) -> dict[str, Any]:
        self._sequence += 1
        rows = [{"name": name, "is_system": False, "is_meta": False, **row} for name, row in self.installed.items()]
        return {
            "node": self._node.id, "instance": "i", "epoch": self.epoch, "sequence": self._sequence, "backends": rows,
            "processes": self.processes, "applied": self.applied,
        }  # fmt: skip

    async def tell(self) -> None:
        await self._bus.publish(node_subject(self._node.id, "corral.report"), json.dumps(self.report()).encode())

    async def install(self, request: dict[str, Any]) -> dict[str, Any]:
        self.installed["echo"] = {
            "digest": request["corral"].get("digest", "sha256:new"),
            "generation": request["corral"].get("generation"),
        }
        return {"success": True}

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]


@asynccontextmanager
async def controlling(
    stores: Stores,
    bus: Bus,
    limits: AttemptLimits = LIMITS,
    *,
    replicas: VersionRollout | None = None,
    intents: IntentStore | None = None,
) -> AsyncIterator[IntentReconciler]:
    clock = SystemClock()
    refused = RefusedMessages(stores.nodes, clock, MetricRegistry())
    runtime = make_runtime(stores)
    reports = Reports(
        runtime,
        bus=bus,
        observed=stores.observed,
        nodes=stores.nodes,
        refused=refused,
        clock=clock,
        request_localai_report=make_reporter(stores, bus).request_report,
    )
    progress = LiveProgress(bus=bus, store=stores.operations, refused=refused, clock=clock)
    await reports.start()
    await progress.start()

    async def nothing() -> None:
        return

    controller = IntentReconciler(
        runtime,
        intents=intents or stores.intents,
        bus=bus,
        reports=reports,
        progress=progress,
        health=stores.health,
        replicas=replicas or SmokeTest(bus),
        peers=BlobPeers(
            nodes=stores.nodes,
            observed=stores.observed,
            request_report=reports.request_report,
            clock=clock,
            ids=SystemIds(),
        ),
        limits=limits,
        ids=SystemIds(),
        on_change=nothing,
    )

    async def notify() -> None:
        controller.loop.notify()

    reports.on_change(notify)
    reports.listen(controller.on_report)
    saving = Reconciler("progress", progress.reconcile, runtime, every_s=SAVE_EVERY_S)
    running = [asyncio.ensure_future(work()) for work in (reports.run, saving.run, controller.run)]
    try:
        yield controller
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def until(stores: Stores, job: str, *statuses: str, within_s: float = 60.0) -> Operation:
    async with asyncio.timeout(within_s):
        while True:
            operation = await stores.operations.read_one(job)
            if {node.status.value for node in operation.nodes} == set(statuses):
                return operation
            await asyncio.sleep(0.02)


def only(operation: Operation) -> NodeProgress:
    (node,) = operation.nodes
    return node


async def test_success_is_what_the_report_shows(stores: Stores, connect: Connect) -> None:
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)
    await worker.serve_reports()
    await worker.serve("backend.install", worker.install)
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        done = only(await until(stores, job, "success"))
    assert (done.digest, done.attempts) == ("sha256:new", 0)


async def test_a_worker_that_replies_done_and_has_nothing_has_failed(stores: Stores, connect: Connect) -> None:
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)
    await worker.serve_reports()

    async def claims(_request: dict[str, Any]) -> dict[str, Any]:
        return {"success": True}

    await worker.serve("backend.install", claims)
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        operation = await until(stores, job, "error")
        async with asyncio.timeout(60):
            while operation.finished_at is None:
                await asyncio.sleep(0.02)
                operation = await stores.operations.read_one(job)
    assert only(operation).attempts == 3
    assert "replied that it is done, but echo is not installed" in only(operation).error
    assert operation.state.value == "failed"


async def test_an_offline_node_becomes_unhealthy_and_keeps_row_and_attempts(stores: Stores, connect: Connect) -> None:
    node = await healthy(stores, "a")
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        async with asyncio.timeout(60):
            while True:
                if (await stores.nodes.read_one(node.id)).status.value == "unhealthy":
                    break
                await asyncio.sleep(0.02)
        shown = only(await until(stores, job, "queued"))
    assert shown.attempts == 0
    assert "not connected to the message bus" in shown.error


async def test_a_time_out_is_cleared_by_a_report_and_only_for_an_install(stores: Stores, connect: Connect) -> None:
    node = await healthy(stores, "a")
    bus = await connect("node")
    worker = Worker(bus, node)
    await worker.serve_reports()

    async def never(_request: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    await worker.serve("backend.install", never)
    slow = AttemptLimits(install_s=0.3, upgrade_s=30, retry=LIMITS.retry)
    async with controlling(stores, await connect("fe"), slow):
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        shown = only(await until(stores, job, "running_on_worker"))
        assert shown.attempts == 0
        worker.installed["echo"] = {"digest": "sha256:new"}
        await bus.publish(node_subject(node.id, "corral.report"), json.dumps(worker.report()).encode())
        assert only(await until(stores, job, "success")).attempts == 0


async def test_a_cancel_that_overtakes_its_command_is_repeated(stores: Stores, connect: Connect) -> None:
    """A worker has nothing to cancel until it has noted the intent on its disk."""
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)
    await worker.serve_reports()
    cancelled = asyncio.Event()

    async def work(_request: dict[str, Any]) -> dict[str, Any]:
        await cancelled.wait()
        return {"success": False, "error": "cancelled", "code": "cancelled"}

    async def cancel(_request: dict[str, Any]) -> dict[str, Any]:
        if worker.verbs().count("corral.cancel") == 1:
            return {"cancelled": 0}
        cancelled.set()
        return {"cancelled": 1}

    await worker.serve("backend.install", work)
    await worker.serve("corral.cancel", cancel)
    patient = AttemptLimits(install_s=900, upgrade_s=900, retry=LIMITS.retry)
    async with controlling(stores, await connect("fe"), patient) as controller:
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await until(stores, job, "downloading")
        await stores.operations.cancel(job, actor="me")
        controller.loop.notify()
        await until(stores, job, "cancelled", within_s=20)
    assert worker.verbs() == ["backend.install", "corral.cancel", "corral.cancel"]


@pytest.mark.parametrize("verb", [Verb.INSTALL, Verb.DELETE])
async def test_a_lost_reply_is_not_waited_for_when_a_report_shows_the_intent_applied(
    stores: Stores, connect: Connect, verb: Verb
) -> None:
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)
    worker.installed["echo"] = {"digest": "sha256:old"}

    async def do_and_lose_the_answer(request: dict[str, Any]) -> dict[str, Any]:
        await worker.tell()  # before it is done: no sign of it
        if verb is Verb.INSTALL:
            await worker.install(request)
        else:
            worker.installed.clear()
        worker.applied["echo"] = request["corral"]["generation"]
        await worker.tell()
        await asyncio.sleep(3600)
        return {}

    await worker.serve(f"backend.{verb.value}", do_and_lose_the_answer)
    patient = AttemptLimits(install_s=900, upgrade_s=900, retry=LIMITS.retry)
    async with controlling(stores, await connect("fe"), patient):
        job = (await stores.admission.admit(admission(verb, node))).id
        done = only(await until(stores, job, "success", within_s=30))
    assert (done.attempts, worker.verbs()) == (0, [f"backend.{verb.value}"])


async def test_an_intent_whose_worker_was_restarted_is_sent_again(stores: Stores, connect: Connect) -> None:
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)

    async def die_at_first(request: dict[str, Any]) -> dict[str, Any]:
        if len(worker.asked) == 1:
            worker.epoch = 2
            await worker.tell()
            await asyncio.sleep(3600)
        return await worker.install(request)

    await worker.serve("backend.install", die_at_first)
    await worker.serve_reports()
    patient = AttemptLimits(install_s=900, upgrade_s=900, retry=LIMITS.retry)
    async with controlling(stores, await connect("fe"), patient):
        for name in ("one", "two"):  # once the second is written down, everybody has heard the first

            async def is_written(name: str = name) -> bool:
                return name in {row.name for row in (await stores.observed.read_backends()).get(node.id, ())}

            worker.installed[name] = {"digest": "sha256:any"}
            await worker.tell()
            await wait_until_async(is_written, what=f"{name} is written down")
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        done = only(await until(stores, job, "success", within_s=30))
    assert (done.attempts, worker.verbs()) == (0, ["backend.install", "backend.install"])


async def test_a_delete_without_a_reply_is_done_when_a_report_shows_it(stores: Stores, connect: Connect) -> None:
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)
    generations: list[int] = []

    async def never(request: dict[str, Any]) -> dict[str, Any]:
        generations.append(request["corral"]["generation"])
        await asyncio.sleep(3600)
        return {}

    await worker.serve("backend.delete", never)
    async with controlling(stores, await connect("fe"), replace(LIMITS, delete_s=2.0)):
        job = (await stores.admission.admit(admission(Verb.DELETE, node))).id
        await until(stores, job, "running_on_worker")
        worker.applied["echo"] = generations[0]
        await worker.tell()
        assert only(await until(stores, job, "success", within_s=30)).attempts == 0


async def test_an_upgrade_falls_back_to_a_forced_install_for_a_worker_that_knows_no_upgrades(
    stores: Stores, connect: Connect
) -> None:
    node = await healthy(stores, "a", localai=True)
    worker = Worker(await connect("node"), node)

    async def listed(_request: dict[str, Any]) -> dict[str, Any]:
        rows = [{"name": name, "is_system": False, "is_meta": False, **row} for name, row in worker.installed.items()]
        return {"backends": rows or None}

    async def running(_request: dict[str, Any]) -> dict[str, Any]:
        return {"models": []}

    async def install(_request: dict[str, Any]) -> dict[str, Any]:
        worker.installed["echo"] = {}  # LocalAI may tell no digest
        return {"success": True, "address": "a:1"}

    await worker.serve("backend.list", listed)
    await worker.serve("models.running", running)
    await worker.serve("backend.install", install)
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.UPGRADE, node))).id
        await until(stores, job, "success")
    (request,) = [request for verb, request in worker.asked if verb == "backend.install"]
    assert request["force"] is True
    assert request["op_id"] == job


async def test_an_upgrade_that_fails_does_not_fall_back(stores: Stores, connect: Connect) -> None:
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)
    await worker.serve_reports()

    async def fails(_request: dict[str, Any]) -> dict[str, Any]:
        return {"success": False, "error": "no such layer", "code": "artifact_failed"}

    await worker.serve("backend.upgrade", fails)
    await worker.serve("backend.install", worker.install)
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.UPGRADE, node))).id
        failed = only(await until(stores, job, "error"))
    assert failed.error == "no such layer"
    assert set(worker.verbs()) == {"backend.upgrade"}


async def test_a_retry_from_the_row_alone_sends_what_the_first_attempt_sent(stores: Stores, connect: Connect) -> None:
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)
    await worker.serve_reports()

    async def second_time(request: dict[str, Any]) -> dict[str, Any]:
        if len(worker.asked) == 1:
            return {"success": False, "error": "disk full"}
        return await worker.install(request)

    await worker.serve("backend.install", second_time)
    build = BuildRef(
        name="echo",
        alias="e",
        uris=("oci://r/echo@sha256:new", "oci://mirror/echo@sha256:new"),
        digest="sha256:new",
        version="1.0",
        manifest='{"protocol":"openai"}',
    )
    spec = BackendSpec(reference="ours@echo", build=build, galleries='[{"name":"ours","url":"x"}]')
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.INSTALL, node, spec=spec))).id
        await until(stores, job, "success")
    first, second = (request for _, request in worker.asked)
    assert first == second
    assert msgspec.convert(first["corral"]["build"], BuildRef) == build
    assert (first["backend"], first["name"], first["alias"]) == ("ours@echo", "echo", "e")


async def test_an_intent_that_the_worker_considers_outdated_gets_a_higher_generation(
    stores: Stores, connect: Connect
) -> None:
    node = await healthy(stores, "a")
    worker = Worker(await connect("node"), node)
    await worker.serve_reports()

    async def picky(request: dict[str, Any]) -> dict[str, Any]:
        if len(worker.asked) == 1:
            return {"success": False, "error": "outdated", "code": "outdated_command"}
        return await worker.install(request)

    await worker.serve("backend.install", picky)
    async with controlling(stores, await connect("fe")):
        job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
        await until(stores, job, "success")
    first, second = (request["corral"]["generation"] for _, request in worker.asked)
    assert second > first


async def test_slow_nodes_delay_no_others_and_two_frontends_share_the_work(stores: Stores, connect: Connect) -> None:
    bus = await connect("node")
    nodes = [await healthy(stores, f"n{number}") for number in range(20)]
    workers = []
    for number, node in enumerate(nodes):
        worker = Worker(bus, node)
        workers.append(worker)
        await worker.serve_reports()

        async def behave(request: dict[str, Any], worker: Worker = worker, slow: bool = number == 0) -> dict[str, Any]:
            await asyncio.sleep(0.4 if slow else 0.01)
            return await worker.install(request)

        await worker.serve("backend.install", behave)
    async with controlling(stores, await connect("fe")), controlling(stores, await connect("fe2")):
        job = (await stores.admission.admit(admission(Verb.INSTALL, *nodes))).id
        await until(stores, job, "success")
    assert [len(worker.asked) for worker in workers] == [1] * 20, "each intent was given once"
