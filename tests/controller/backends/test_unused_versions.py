"""Upgrades where nothing runs: the worker starts the version once, and what it found is stored and judged. Workers are
simulated on a real bus, stores are real."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.backends.test_intent_controller import LIMITS, Connect, Worker, controlling
from controller.backends.test_intent_faults import PATIENT, start_worker, stores
from controller.backends.test_rollout_controller import Frontend
from corral.controller.backends.attempts import AttemptLimits
from corral.core.backends.intents import IntentState, RetryLimits
from corral.core.backends.rollouts import Rollout, RolloutState
from corral.core.backends.starts import StartEvidence, StartProof
from corral.core.nodes.node import Node
from corral.store.stores import Stores
from harness.databases import kind, rig
from harness.waiting import wait_until_async
from store.backends.test_rollouts import again, start

__all__ = ["kind", "rig", "stores"]

SMOKE_TEST = "corral.backend.smoke_test"
STARTED = {"success": True, "tried": True, "detail": "its health check answered"}
ON_FIRE = {"success": False, "error": "exit code 3: the engine is on fire", "code": "start_failed"}

ONE_ATTEMPT = AttemptLimits(install_s=900, upgrade_s=900, retry=RetryLimits(attempts=1))
"""A retry would install the version again before the test has looked."""

Behave = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def answers(*replies: dict[str, Any]) -> Behave:
    """One after another; the last one for good."""
    left = list(replies)

    async def answer(_request: dict[str, Any]) -> dict[str, Any]:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


async def serve(worker: Worker, smoke_test: Behave) -> None:
    """A worker that has the old version, and runs nothing of it."""
    worker.installed["echo"] = {"digest": "sha256:old"}

    async def upgrade(request: dict[str, Any]) -> dict[str, Any]:
        await worker.install(request)
        worker.applied["echo"] = request["corral"]["generation"]
        await worker.tell()
        return {"success": True}

    async def rollback(_request: dict[str, Any]) -> dict[str, Any]:
        worker.installed["echo"] = {"digest": "sha256:old"}
        worker.applied.pop("echo", None)
        return {"success": True}

    async def stop(_request: dict[str, Any]) -> dict[str, Any]:
        return {"terminated": True}

    await worker.serve("backend.upgrade", upgrade)
    await worker.serve("corral.backend.rollback", rollback)
    await worker.serve("model.stop", stop)
    await worker.serve(SMOKE_TEST, smoke_test)


@asynccontextmanager
async def upgrading(
    stores: Stores, connect: Connect, smoke_test: Behave, limits: AttemptLimits = LIMITS
) -> AsyncIterator[tuple[Rollout, Worker]]:
    """Two nodes, of which the first is the canary."""
    workers: list[tuple[Node, Worker]] = [await start_worker(stores, connect, name) for name in ("a", "b")]
    for _, worker in workers:
        await serve(worker, smoke_test)
    async with controlling(stores, await connect("fe"), limits):
        yield await start(stores, [node for node, _ in workers], soak_s=0), workers[0][1]


async def canary_has(stores: Stores, rollout: Rollout, **wanted: Any) -> Rollout:
    async def look() -> Rollout | None:
        current = await again(stores, rollout)
        return current if all(getattr(current.nodes[0], name) == value for name, value in wanted.items()) else None

    return await wait_until_async(look, what=f"the canary has {wanted}", within_s=60)


async def test_a_version_that_nothing_runs_is_started_once_before_it_is_accepted(
    stores: Stores, connect: Connect
) -> None:
    async with upgrading(stores, connect, answers(STARTED)) as (rollout, worker):
        await canary_has(stores, rollout, is_done=True)
        (request,) = [request for verb, request in worker.asked if verb == SMOKE_TEST]
        assert request == {"backend": "echo", "digest": "sha256:new", "op_id": rollout.operation_id}
        shown = await again(stores, rollout)
        proof = StartProof(evidence=StartEvidence.SMOKE_TEST, detail="its health check answered")
        assert shown.nodes[0].proof == proof
        await Frontend(stores, "judge").turn()
        record = (await again(stores, rollout)).waves[0]
        [starts] = [one for one in record.verdicts if one.gate == "starts"]
        assert starts.outcome.value == "passed"


async def test_a_version_that_does_not_start_goes_back_and_fails_the_rollout(stores: Stores, connect: Connect) -> None:
    async with upgrading(stores, connect, answers(ON_FIRE), ONE_ATTEMPT) as (rollout, worker):
        await canary_has(stores, rollout, version_failed=True)
        await Frontend(stores, "judge").turn()
        failed = await again(stores, rollout)
        assert failed.state is RolloutState.ROLLING_BACK
        assert failed.nodes[0].digest == "sha256:new", "as the worker reported it, though it is not there any more"
        assert "the engine is on fire" in failed.reason
        assert "the old version is current again" in failed.reason
        assert [one.outcome.value for one in failed.waves[0].verdicts] == ["failed"]
        assert worker.installed["echo"]["digest"] == "sha256:old"


async def test_an_engine_that_cannot_be_tested_is_stored_as_untried(stores: Stores, connect: Connect) -> None:
    untried = {"success": True, "detail": "it has no `trial`"}
    async with upgrading(stores, connect, answers(untried)) as (rollout, _):
        shown = await canary_has(stores, rollout, is_done=True)
    assert shown.nodes[0].proof == StartProof(evidence=StartEvidence.NONE, detail="it has no `trial`")


@pytest.mark.parametrize("code", ["unavailable", "conflict"])
async def test_a_test_that_could_not_be_made_proves_nothing_against_the_version(
    stores: Stores, connect: Connect, code: str
) -> None:
    refused = {"success": False, "error": "there is no free port", "code": code}
    async with upgrading(stores, connect, answers(refused, STARTED), PATIENT) as (rollout, worker):
        shown = await canary_has(stores, rollout, is_done=True)
    assert shown.nodes[0].proof is not None
    assert shown.nodes[0].proof.evidence is StartEvidence.SMOKE_TEST
    assert "corral.backend.rollback" not in worker.verbs()


async def test_a_worker_that_restarts_in_the_test_is_asked_again_at_once(stores: Stores, connect: Connect) -> None:
    begun = asyncio.Event()

    async def never_the_first_time(_request: dict[str, Any]) -> dict[str, Any]:
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(3600)
        return STARTED

    async with upgrading(stores, connect, never_the_first_time, PATIENT) as (rollout, worker):
        await asyncio.wait_for(begun.wait(), 60)
        worker.epoch += 1
        await worker.tell()
        shown = await canary_has(stores, rollout, is_done=True)
    assert shown.nodes[0].proof is not None


async def test_another_frontend_tests_again_after_the_first_one_ended(stores: Stores, connect: Connect) -> None:
    begun = asyncio.Event()

    async def never_the_first_time(_request: dict[str, Any]) -> dict[str, Any]:
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(3600)
        return STARTED

    async with upgrading(stores, connect, never_the_first_time, PATIENT) as (rollout, _):
        await asyncio.wait_for(begun.wait(), 60)
    assert not (await again(stores, rollout)).nodes[0].is_done
    async with controlling(stores, await connect("fe2"), PATIENT):
        shown = await canary_has(stores, rollout, is_done=True)
    assert shown.nodes[0].proof is not None


async def test_a_cancel_in_the_test_stops_it(stores: Stores, connect: Connect) -> None:
    begun = asyncio.Event()

    async def never(_request: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await asyncio.sleep(3600)
        return STARTED

    async with upgrading(stores, connect, never, PATIENT) as (rollout, worker):
        await worker.serve("corral.cancel", answers({"cancelled": 0}))
        await asyncio.wait_for(begun.wait(), 60)
        await stores.operations.cancel(rollout.operation_id, actor="ann")

        async def has_ended() -> bool:
            return (await again(stores, rollout)).nodes[0].intent is not IntentState.RUNNING

        await wait_until_async(has_ended, what="the attempt has ended", within_s=60)
        stopped = [request["process_key"] for verb, request in worker.asked if verb == "model.stop"]
    assert stopped == [f"smoke-test-{rollout.operation_id}#0"]
