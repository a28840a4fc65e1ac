"""Intents and operations in both databases: admitted whole, claimed once, ended by whoever holds them."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from corral.core.backends.build import BuildRef
from corral.core.backends.intents import (
    AttemptCancelled,
    AttemptConfirmed,
    AttemptOutcome,
    AttemptRejected,
    AttemptUnconfirmed,
    BackendSpec,
    Intent,
    IntentState,
    RetryLimits,
    Verb,
    plan_next,
)
from corral.core.backends.operations import NodeProgress, NodeProgressStatus, OperationState
from corral.core.backends.policies import Ensure, OnDrift, PolicyChange
from corral.core.errors import Conflict, InvalidInput, OutcomeUnknown
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import Observation, ObservedBackend
from corral.core.transfer import TransferProgress
from corral.store.backends.create_operation import AdmissionStore
from corral.store.backends.intents import IntentClaim, Result
from corral.store.backends.operations import Places
from corral.store.backends.prune import prune_intents
from corral.store.engine.database import Database
from corral.store.stores import Stores
from corral.system import SystemIds
from harness.databases import Rig
from harness.fleet_store import admission, healthy
from harness.machines import Machine, actions, join, judge

LIMITS = RetryLimits(attempts=2, base_s=10, cap_s=10)


async def end(stores: Stores, claim: IntentClaim, outcome: AttemptOutcome) -> bool:
    step = plan_next(claim.intent, outcome, draw=1.0, limits=LIMITS)
    return claim.intent.id in await stores.intents.record([Result(claim.intent, step)])


async def claim(stores: Stores, token: str = "fe-1", limit: int = 100) -> list[IntentClaim]:
    return await stores.intents.claim(token, lease_s=15, limit=limit)


async def states(stores: Stores) -> list[tuple[str, str]]:
    rows = await stores.intents.read_some(node_id=None, backend=None, state=None, limit=100)
    return sorted((row.verb.value, row.state.value) for row in rows)


async def test_an_operation_runs_to_its_end(stores: Stores) -> None:
    nodes = [await healthy(stores, name) for name in ("a", "b")]
    admitted = await stores.admission.admit(admission(Verb.INSTALL, *nodes))
    operation = await stores.operations.read_one(admitted.id)
    assert [(node.node_name, node.status.value) for node in operation.nodes] == [("a", "queued"), ("b", "queued")]
    claims = await claim(stores)
    assert sorted(one.node_name for one in claims) == ["a", "b"]
    assert await claim(stores, "fe-2") == [], "what one holds, no other gets"
    for one in claims:
        assert await end(stores, one, AttemptConfirmed("sha256:new"))
    operation = await stores.operations.read_one(admitted.id)
    assert (operation.state, operation.percentage) == (OperationState.COMPLETED, 100.0)
    assert await stores.operations.read_open() == []
    (entry,) = await stores.operations.read_history()
    assert entry.id == admitted.id
    assert await actions(stores, "echo") == ["backend.install"]


async def test_the_same_key_is_the_same_operation_and_another_request_with_it_is_refused(stores: Stores) -> None:
    node = await healthy(stores, "a")
    first = await stores.admission.admit(admission(Verb.INSTALL, node, idempotency_key="k", request_hash="h"))
    again = await stores.admission.admit(admission(Verb.INSTALL, node, idempotency_key="k", request_hash="h"))
    assert (again.id, again.again) == (first.id, True)
    with pytest.raises(Conflict, match="another request"):
        await stores.admission.admit(admission(Verb.DELETE, node, idempotency_key="k", request_hash="other"))
    assert await states(stores) == [("install", "pending")]


async def test_many_frontends_admit_the_same_key_at_once_and_there_is_one_operation(stores: Stores, rig: Rig) -> None:
    node = await healthy(stores, "a")
    others = [Stores(await rig.open()) for _ in range(4)]
    admitted = await asyncio.gather(
        *(
            one.admission.admit(admission(Verb.INSTALL, node, idempotency_key="k", request_hash="h"))
            for one in (stores, *others)
        )
    )
    assert len({one.id for one in admitted}) == 1
    assert await states(stores) == [("install", "pending")]


async def test_a_newer_intent_replaces_an_older_one_and_the_older_ones_holder_cannot_write(stores: Stores) -> None:
    node = await healthy(stores, "a")
    install = await stores.admission.admit(admission(Verb.INSTALL, node))
    (held,) = await claim(stores)
    delete = await stores.admission.admit(admission(Verb.DELETE, node, spec=BackendSpec(reference="echo")))
    assert await states(stores) == [("delete", "pending"), ("install", "superseded")]
    assert not await end(stores, held, AttemptConfirmed("sha256:new")), "a stale holder's result is void"
    assert (await stores.operations.read_one(install.id)).state is OperationState.CANCELLED
    (newer,) = await claim(stores)
    assert newer.intent.generation > held.intent.generation
    assert await end(stores, newer, AttemptConfirmed())
    deleted = await stores.operations.read_one(delete.id)
    assert (deleted.state, deleted.nodes[0].transfer.phase) == (OperationState.COMPLETED, ""), (
        "what is gone is not ready"
    )


async def test_contradicting_operations_at_once_leave_one_live_intent(stores: Stores, rig: Rig) -> None:
    node = await healthy(stores, "a")
    others = [Stores(await rig.open()) for _ in range(3)]
    verbs = [Verb.INSTALL, Verb.DELETE, Verb.UPGRADE]
    for _ in range(5):
        await asyncio.gather(
            *(one.admission.admit(admission(verb, node)) for one, verb in zip(others, verbs, strict=True))
        )
        rows = await stores.intents.read_some(node_id=node.id, backend="echo", state=None, limit=100)
        live = [row for row in rows if row.state.live]
        assert [row.id for row in live] == [row.id for row in rows if row.newest]
        assert live[0].generation == max(row.generation for row in rows)


BUILD = BackendSpec(reference="cpu-echo", build=BuildRef(name="cpu-echo", alias="echo", digest="sha256:new"))


@pytest.mark.parametrize("delete_is_newer", [True, False])
async def test_a_newer_intent_replaces_what_it_excludes_under_another_name(
    stores: Stores, delete_is_newer: bool
) -> None:
    node = await healthy(stores, "a")
    install = admission(Verb.INSTALL, node, backend="cpu-echo", spec=BUILD)
    delete = admission(Verb.DELETE, node, spec=BackendSpec(reference="echo"))
    other = admission(Verb.DELETE, node, backend="other", spec=BackendSpec(reference="other"))
    await stores.admission.admit(other)
    older, newer = (install, delete) if delete_is_newer else (delete, install)
    await stores.admission.admit(older)
    await stores.admission.admit(newer)
    lost = await stores.operations.read_one(older.id)
    assert (lost.state, lost.nodes[0].error) == (
        OperationState.CANCELLED,
        f"replaced by operation {newer.id} ({newer.verb.value})",
    )
    assert {one.intent.operation_id for one in await claim(stores)} == {newer.id, other.id}


async def test_a_correction_gives_way_to_a_newer_intent_under_another_name(stores: Stores) -> None:
    node = await healthy(stores, "a")
    await stores.admission.admit(admission(Verb.DELETE, node, spec=BackendSpec(reference="echo")))
    (deleted,) = await claim(stores)
    await end(stores, deleted, AttemptConfirmed())
    await stores.admission.admit(admission(Verb.INSTALL, node, backend="cpu-echo", spec=BUILD))
    asked = deleted.intent.generation
    (order,) = admission(Verb.DELETE, node, spec=BackendSpec(reference="echo")).intents
    order = replace(order, expected_generation=asked, desired_generation=asked)
    heal = replace(admission(Verb.DELETE, node, spec=BackendSpec(reference="echo")), cause="policy", intents=(order,))
    await stores.admission.admit(heal)
    assert await states(stores) == [("delete", "succeeded"), ("install", "pending")]


async def test_a_delete_is_read_with_later_installs(stores: Stores) -> None:
    node = await healthy(stores, "a")
    unlike = BackendSpec(reference="other", build=BuildRef(name="other"))
    await stores.admission.admit(admission(Verb.INSTALL, node, backend="cpu-echo", spec=BUILD))
    await stores.admission.admit(admission(Verb.DELETE, node, spec=BackendSpec(reference="echo")))
    names = {node.id: {"echo"}}
    assert node.id in (await stores.intents.read_deletes([])).find([node], names)
    await stores.admission.admit(admission(Verb.INSTALL, node, backend="other", spec=unlike))
    assert node.id in (await stores.intents.read_deletes([])).find([node], names)
    await stores.admission.admit(admission(Verb.INSTALL, node, backend="cpu-echo", spec=BUILD))
    found = await stores.intents.read_deletes([])
    assert found.find([node], names) == {}
    assert {intent.backend for intent in found.intents} == {"echo", "cpu-echo"}


async def test_a_dead_frontends_claim_runs_out_and_its_late_result_is_void(stores: Stores, rig: Rig) -> None:
    node = await healthy(stores, "a")
    await stores.admission.admit(admission(Verb.INSTALL, node))
    (dead,) = await claim(stores, "fe-1")
    await rig.advance(10)
    assert await stores.intents.renew("fe-1", [dead.intent.id], lease_s=15) == {dead.intent.id}
    await rig.advance(10)
    assert await claim(stores, "fe-2") == []
    await rig.advance(10)
    (taken,) = await claim(stores, "fe-2")
    assert taken.intent.fence == dead.intent.fence + 1
    assert not await end(stores, dead, AttemptRejected("late"))
    assert await stores.intents.renew("fe-1", [dead.intent.id], lease_s=15) == set()
    assert await end(stores, taken, AttemptConfirmed())


async def test_only_healthy_nodes_are_worked_on_and_nothing_is_lost_meanwhile(stores: Stores) -> None:
    node = await healthy(stores, "a")
    await stores.admission.admit(admission(Verb.INSTALL, node))
    await stores.health.suspect(node.id, reason="nobody listens")
    assert await claim(stores) == []
    await judge(stores, node.id)
    assert len(await claim(stores)) == 1


async def test_a_time_out_keeps_attempts_and_failures_spend_them_until_people_must_look(
    stores: Stores, rig: Rig
) -> None:
    node = await healthy(stores, "a")
    admitted = await stores.admission.admit(admission(Verb.INSTALL, node))
    (first,) = await claim(stores)
    await end(stores, first, AttemptUnconfirmed("slow", 900))
    (shown,) = (await stores.operations.read_one(admitted.id)).nodes
    assert (shown.status.value, shown.attempts) == ("running_on_worker", 0)
    assert await claim(stores) == []
    ((background, _),) = [*await _observing(stores, node.id)]
    assert background.state is IntentState.UNCONFIRMED
    await rig.advance(901)
    (second,) = await claim(stores)
    await end(stores, second, AttemptRejected("disk full"))
    (shown,) = (await stores.operations.read_one(admitted.id)).nodes
    assert (shown.status.value, shown.attempts, shown.error) == ("error", 1, "disk full")
    await rig.advance(11)
    (third,) = await claim(stores)
    await end(stores, third, AttemptRejected("disk still full"))
    operation = await stores.operations.read_one(admitted.id)
    assert (operation.state, operation.error) == (OperationState.FAILED, "a: disk still full")
    assert await states(stores) == [("install", "dead_lettered")]
    assert [one.id for one in await stores.operations.read_open()] == [admitted.id], "it is shown until dismissed"

    again = await stores.operations.retry(admitted.id, node_id=node.id, actor="me")
    assert (again.state, [node.attempts for node in again.nodes]) == (OperationState.RUNNING, [0])
    (fourth,) = await claim(stores)
    await end(stores, fourth, AttemptConfirmed())
    assert (await stores.operations.read_one(admitted.id)).state is OperationState.COMPLETED
    with pytest.raises(InvalidInput, match="nothing to retry"):
        await stores.operations.retry(admitted.id, node_id=None, actor="me")


async def _observing(stores: Stores, node_id: str) -> list[tuple[Intent, list[ObservedBackend]]]:
    seen = Observation(node_id=NodeId(node_id), instance="i", epoch=1, sequence=1, backends=(), processes=())
    await stores.observed.record([seen])
    return list(await stores.intents.read_unconfirmed())


async def test_cancel_ends_what_waits_and_marks_what_runs(stores: Stores) -> None:
    nodes = [await healthy(stores, name) for name in ("a", "b")]
    change = PolicyChange(selector={}, ensure=Ensure.PRESENT, spec=BackendSpec(reference="echo"))
    admitted = await stores.admission.admit(admission(Verb.INSTALL, *nodes, policy=change))
    (running,) = await claim(stores, limit=1)
    cancelled = await stores.operations.cancel(admitted.id, actor="me")
    assert [node for node, _ in cancelled.running] == [running.intent.node_id]
    assert await stores.intents.read_held("fe-1") == {running.intent.id: True}
    assert await stores.policies.read_all() == []
    assert await end(stores, running, AttemptCancelled("cancelled"))
    assert (await stores.operations.read_one(admitted.id)).state is OperationState.CANCELLED
    assert "operation.cancelled" in await actions(stores, admitted.id)
    again = await stores.operations.retry(admitted.id, node_id=None, actor="me")
    assert again.state is OperationState.RUNNING
    assert [policy.backend for policy in await stores.policies.read_all()] == ["echo"], "it holds again"


async def test_cancel_brings_back_what_was_to_hold_before_and_a_retry_replaces_it_again(stores: Stores) -> None:
    a, b = await healthy(stores, "a"), await healthy(stores, "b")

    async def ask(verb: Verb, *nodes: Node, **selector: str) -> str:
        ensure = Ensure.PRESENT if verb is Verb.INSTALL else Ensure.ABSENT
        change = PolicyChange(selector=selector, ensure=ensure, spec=BackendSpec(reference="echo"))
        return (await stores.admission.admit(admission(verb, *nodes, policy=change))).id

    async def holding() -> list[str]:
        return [policy.operation_id for policy in await stores.policies.read_all()]

    everywhere, some = await ask(Verb.INSTALL, a, b), await ask(Verb.INSTALL, a, room="b2")
    gone = await ask(Verb.DELETE, a, b)
    assert await holding() == [gone]
    await stores.operations.cancel(gone, actor="me")
    assert await holding() == [everywhere, some]
    await stores.operations.retry(gone, node_id=None, actor="me")
    assert await holding() == [gone]
    newer = await ask(Verb.INSTALL, a, room="b2")
    await stores.operations.cancel(gone, actor="me")
    assert await holding() == [everywhere, newer], "what was asked for anew since is left as it is"


async def test_a_retry_leaves_alone_what_a_newer_operation_has_replaced(stores: Stores) -> None:
    nodes = [await healthy(stores, name) for name in ("a", "b")]
    admitted = await stores.admission.admit(admission(Verb.INSTALL, *nodes))
    await stores.operations.cancel(admitted.id, actor="me")
    await stores.admission.admit(admission(Verb.DELETE, nodes[0]))
    again = await stores.operations.retry(admitted.id, node_id=None, actor="me")
    assert [(node.node_name, node.status.value) for node in again.nodes] == [("a", "cancelled"), ("b", "queued")]
    with pytest.raises(Conflict, match="on a; start a new operation"):
        await stores.operations.retry(admitted.id, node_id=nodes[0].id, actor="me")


@pytest.mark.parametrize("at_it_again", [False, True])
async def test_what_failed_and_is_tried_again_is_not_called_running_and_cancel_keeps_the_reason(
    stores: Stores, rig: Rig, at_it_again: bool
) -> None:
    good, bad = await healthy(stores, "a"), await healthy(stores, "b")
    admitted = await stores.admission.admit(admission(Verb.INSTALL, good, bad))
    by_node = {one.intent.node_id: one for one in await claim(stores)}
    await end(stores, by_node[bad.id], AttemptRejected("no such package"))
    assert not (await stores.operations.read_one(admitted.id)).is_retrying, "the other node has not ended"
    await end(stores, by_node[good.id], AttemptConfirmed())
    again = await stores.operations.read_one(admitted.id)
    assert again.is_retrying
    assert again.next_attempt_at is not None
    if at_it_again:
        await rig.advance(11)
        (second,) = await claim(stores)
        assert (await stores.operations.read_one(admitted.id)).is_retrying
    with pytest.raises(Conflict, match="cancel it to stop the retries"):
        await stores.operations.dismiss(admitted.id, actor="me")
    await stores.operations.cancel(admitted.id, actor="me")
    if at_it_again:
        assert await end(stores, second, AttemptCancelled("cancelled by me"))
    over = await stores.operations.read_one(admitted.id)
    assert (over.state, over.error) == (
        OperationState.CANCELLED,
        "b: cancelled by me; it had failed once: no such package",
    )
    assert (await stores.operations.cancel(admitted.id, actor="me")).was_over


async def test_a_policy_for_all_nodes_replaces_every_policy_with_a_selector(stores: Stores) -> None:
    def change(ensure: Ensure, on_drift: OnDrift | None = None, **selector: str) -> PolicyChange:
        return PolicyChange(selector=selector, ensure=ensure, spec=BackendSpec(reference="echo"), on_drift=on_drift)

    await stores.admission.admit(admission(Verb.INSTALL, policy=change(Ensure.PRESENT, tier="fast")))
    await stores.admission.admit(admission(Verb.INSTALL, policy=change(Ensure.PRESENT, OnDrift.REPORT, tier="slow")))
    assert len(await stores.policies.read_all()) == 2
    await stores.admission.admit(admission(Verb.DELETE, policy=change(Ensure.ABSENT)))
    (left,) = await stores.policies.read_all()
    assert (left.ensure, left.on_drift) == (Ensure.ABSENT, OnDrift.CORRECT)
    changed = await stores.policies.set_on_drift(left.id, OnDrift.FREEZE, actor="me")
    assert changed.on_drift is OnDrift.FREEZE
    await stores.policies.end(left.id, actor="me")
    assert await stores.policies.read_all() == []


async def test_intents_nobody_can_carry_out_are_ended_at_the_next_start(stores: Stores) -> None:
    nodes = [await healthy(stores, name) for name in ("a", "b")]
    admitted = await stores.admission.admit(admission(Verb.INSTALL, *nodes))
    await stores.nodes.remove(nodes[0].id, actor="me")
    await stores.database.migrate(prune_intents)
    operation = await stores.operations.read_one(admitted.id)
    shown = {node.node_name: (node.status.value, node.error) for node in operation.nodes}
    assert shown == {"a": ("cancelled", "the node was removed from the cluster"), "b": ("queued", "")}
    (left,) = await claim(stores)
    await end(stores, left, AttemptConfirmed())
    assert (await stores.operations.read_one(admitted.id)).state is OperationState.CANCELLED


class CutAfterCommit:
    """F-15: the first commit happens, and its answer is lost."""

    def __init__(self, database: Database) -> None:
        self._database, self.cuts = database, 1

    async def write(self, body: Any) -> Any:
        result = await self._database.write(body)
        if self.cuts:
            self.cuts -= 1
            raise OutcomeUnknown("the connection was lost during a commit")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


async def test_a_connection_cut_after_the_commit_makes_no_second_operation(stores: Stores) -> None:
    node = await healthy(stores, "a")
    cut = CutAfterCommit(stores.database)
    wanted = admission(Verb.INSTALL, node)
    admitted = await AdmissionStore(cast("Database", cut), SystemIds()).admit(wanted)
    assert (admitted.id, cut.cuts) == (wanted.id, 0)
    assert await states(stores) == [("install", "pending")]
    assert await actions(stores, "echo") == ["backend.install"]


async def test_the_history_knows_a_few_names_and_how_many_there_were(stores: Stores) -> None:
    nodes = [await healthy(stores, name) for name in ("d", "b", "c", "a")]
    many = await stores.admission.admit(admission(Verb.INSTALL, *nodes))
    one = await stores.admission.admit(admission(Verb.DELETE, nodes[0]))
    assert await stores.operations.read_places([]) == {}
    found = await stores.operations.read_places([many.id, one.id, "nobody"])
    assert found == {many.id: Places(("a", "b", "c"), 4), one.id: Places(("d",), 1)}


async def test_history_is_cleared_and_the_audit_log_stays(stores: Stores) -> None:
    admitted = await stores.admission.admit(admission(Verb.DELETE))
    assert [one.id for one in await stores.operations.read_history()] == [admitted.id]
    await stores.operations.dismiss(admitted.id, actor="me")
    (dismissed, *_) = await stores.events.read_latest(limit=1)
    assert (dismissed.action, dismissed.detail) == ("operation.dismissed", {"verb": "delete", "backend": "echo"})
    await stores.operations.clear_history(actor="me")
    assert await stores.operations.read_history() == []
    assert await actions(stores, "echo") == ["backend.delete"]


async def test_the_audit_log_names_the_nodes_of_an_operation_and_only_the_first_of_many(stores: Stores) -> None:
    nodes = [await healthy(stores, f"n{number:02}") for number in range(12)]
    admitted = await stores.admission.admit(admission(Verb.INSTALL, *reversed(nodes)))
    few = await stores.admission.admit(admission(Verb.INSTALL, nodes[1], nodes[0], backend="beside"))
    await stores.operations.cancel(few.id, actor="me")
    await stores.operations.retry(few.id, node_id=nodes[1].id, actor="me")
    retried, cancelled, small, large = await stores.events.read_latest(limit=4)
    first = [node.id for node in nodes]
    assert large.detail == {"operation": admitted.id, "cause": "request", "nodes": first[:10], "node_count": 12}
    assert (small.action, small.detail["nodes"], small.detail["node_count"]) == ("backend.install", first[:2], 2)
    what = {"verb": "install", "backend": "beside"}
    assert (cancelled.action, cancelled.detail) == ("operation.cancelled", what | {"nodes": first[:2], "node_count": 2})
    assert (retried.action, retried.detail) == ("operation.retried", what | {"nodes": first[1:2], "node_count": 1})


async def test_an_unconfirmed_intent_is_due_when_its_worker_was_restarted(stores: Stores) -> None:
    node = await healthy(stores, "a")
    await stores.admission.admit(admission(Verb.INSTALL, node))
    (held,) = await claim(stores)
    assert await end(stores, held, AttemptUnconfirmed("no answer within 900 s", 900))
    machine = Machine(name="a", secret="secret-of-a", process="process-a")
    await join(stores, machine)
    assert await claim(stores) == [], "the same process registered again, and is asked when it is due"
    await join(stores, machine.restarted())
    (again,) = await claim(stores)
    assert (again.intent.id, again.intent.attempts) == (held.intent.id, 0)
    assert again.epoch == held.epoch + 1


async def test_an_intent_that_a_newer_one_excludes_under_another_name_is_not_retried(stores: Stores) -> None:
    node, other = await healthy(stores, "a"), await healthy(stores, "b")
    installed = await stores.admission.admit(admission(Verb.INSTALL, node, other, backend="cpu-echo", spec=BUILD))
    for _ in range(LIMITS.attempts):
        for one in await claim(stores):
            step = plan_next(one.intent, AttemptRejected("disk full"), draw=0.0, limits=RetryLimits(attempts=1))
            await stores.intents.record([Result(one.intent, step)])
    await stores.admission.admit(admission(Verb.DELETE, node, spec=BackendSpec(reference="echo")))
    with pytest.raises(Conflict, match="a newer operation supersedes"):
        await stores.operations.retry(installed.id, node_id=node.id, actor="me")
    retried = await stores.operations.retry(installed.id, node_id=None, actor="me")
    assert {shown.node_name: shown.status.value for shown in retried.nodes} == {"a": "error", "b": "queued"}


async def test_a_new_attempt_begins_from_nothing_and_one_that_is_taken_over_goes_on(stores: Stores, rig: Rig) -> None:
    node = await healthy(stores, "a")
    job = (await stores.admission.admit(admission(Verb.INSTALL, node))).id

    async def far(sequence: int, percentage: float) -> None:
        progress = NodeProgress(
            node_id=node.id,
            node_name="",
            status=NodeProgressStatus.DOWNLOADING,
            transfer=TransferProgress(
                phase="downloading", file_name="layer", bytes_done=95, bytes_total=100, percentage=percentage
            ),
            sequence=sequence,
        )
        await stores.operations.save_progress([(job, progress)])

    async def shown() -> NodeProgress:
        return (await stores.operations.read_one(job)).nodes[0]

    await claim(stores)
    await far(9, 95.0)
    await rig.advance(16)
    (taken_over,) = await claim(stores, "fe-2")
    assert (await shown()).transfer.percentage == 95.0
    await end(stores, taken_over, AttemptRejected("no space left"))
    await rig.advance(16)
    await claim(stores)
    begun = await shown()
    assert begun.transfer == TransferProgress()
    await far(1, 3.0)
    assert (await shown()).transfer.percentage == 3.0
