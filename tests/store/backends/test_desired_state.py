"""What holds after failures, cancels and rollbacks, in both databases."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from corral.core.backends.build import BuildRef
from corral.core.backends.intents import (
    DONE_BEFORE_CANCEL,
    AttemptConfirmed,
    AttemptRejected,
    BackendSpec,
    Intent,
    IntentState,
    Verb,
)
from corral.core.backends.operations import Admission, OperationState
from corral.core.backends.version_pins import PinChange
from corral.core.nodes.node import Node
from corral.core.nodes.targets import Target
from corral.store.backends.intents import IntentStore
from corral.store.engine.database import Body, Database, Row, Tx
from corral.store.stores import Stores
from harness.databases import Rig
from harness.fleet_store import admission, healthy
from store.backends.test_intents import claim, end

OLD, NEW = "sha256:old", "sha256:new"
T = TypeVar("T")


async def done(stores: Stores, asked: Admission, digest: str = NEW) -> str:
    admitted = await stores.admission.admit(asked)
    for one in await claim(stores):
        await end(stores, one, AttemptConfirmed(digest))
    return admitted.id


async def restored(stores: Stores, node: Node) -> list[Intent]:
    newest = await stores.intents.read_newest([node.id])
    return await stores.intents.read_restored([one for one in newest if one.state is IntentState.CANCELLED])


async def test_a_cancel_restores_the_previous_intent_whatever_its_result(stores: Stores) -> None:
    finished, waiting = await healthy(stores, "finished"), await healthy(stores, "waiting")
    first = await done(stores, admission(Verb.INSTALL, finished))
    second = (await stores.admission.admit(admission(Verb.INSTALL, waiting))).id
    for verb in (Verb.UPGRADE, Verb.DELETE):
        operation = (await stores.admission.admit(admission(verb, finished, waiting))).id
        await stores.operations.cancel(operation, actor="me")
    [held] = await restored(stores, finished)
    assert (held.operation_id, held.state) == (first, IntentState.SUCCEEDED)
    [held] = await restored(stores, waiting)
    assert (held.operation_id, held.state) == (second, IntentState.SUPERSEDED)


@pytest.mark.parametrize("verb", [Verb.UPGRADE, Verb.DELETE])
async def test_a_cancel_also_takes_back_what_is_already_done_on_some_nodes(stores: Stores, verb: Verb) -> None:
    ready, late = await healthy(stores, "ready"), await healthy(stores, "late")
    first = await done(stores, admission(Verb.INSTALL, ready, late))
    operation = (await stores.admission.admit(admission(verb, ready, late))).id
    claims = {one.intent.node_id: one for one in await claim(stores)}
    await end(stores, claims[ready.id], AttemptConfirmed(NEW))
    assert (await stores.operations.read_one(operation)).state is OperationState.RUNNING
    await stores.operations.cancel(operation, actor="me")
    await end(stores, claims[late.id], AttemptConfirmed(NEW))
    for node in (ready, late):
        [held] = await restored(stores, node)
        assert (held.operation_id, held.verb) == (first, Verb.INSTALL)
    ended = await stores.operations.read_one(operation)
    assert (ended.state, {node.error for node in ended.nodes}) == (OperationState.CANCELLED, {DONE_BEFORE_CANCEL})
    await stores.operations.retry(operation, node_id=None, actor="me")
    assert await restored(stores, ready) == [], "it is requested again, on every node"


async def test_a_cancelled_install_keeps_what_is_already_installed(stores: Stores) -> None:
    node, other = await healthy(stores, "a"), await healthy(stores, "b")
    operation = (await stores.admission.admit(admission(Verb.INSTALL, node, other))).id
    claims = {one.intent.node_id: one for one in await claim(stores)}
    await end(stores, claims[node.id], AttemptConfirmed(NEW))
    await stores.operations.cancel(operation, actor="me")
    [kept] = await stores.intents.read_newest([node.id])
    assert kept.state is IntentState.SUCCEEDED


async def test_a_cancelled_correction_and_a_cancelled_install_bring_nothing_back(stores: Stores) -> None:
    corrected, deleted = await healthy(stores, "corrected"), await healthy(stores, "deleted")
    await done(stores, admission(Verb.INSTALL, corrected))
    await done(stores, admission(Verb.DELETE, deleted))
    [newest] = await stores.intents.read_newest([corrected.id])
    asked = admission(Verb.INSTALL, corrected, cause="policy")
    order = replace(asked.intents[0], expected_generation=newest.generation)
    correction = (await stores.admission.admit(replace(asked, intents=(order,)))).id
    await stores.operations.cancel(correction, actor="me")
    install = (await stores.admission.admit(admission(Verb.INSTALL, deleted))).id
    await stores.operations.cancel(install, actor="me")
    assert await restored(stores, corrected) == [], "somebody did not want that"
    assert await restored(stores, deleted) == [], "a load may bring it; nobody wants it away any more"


async def fail(stores: Stores) -> None:
    [one] = await claim(stores)
    await end(stores, replace(one, intent=replace(one.intent, attempts=9)), AttemptRejected("the disk is full"))


async def test_the_free_disk_space_is_recorded_when_retries_are_exhausted(stores: Stores) -> None:
    node = await healthy(stores, "a", available_disk=5, total_disk=100)
    await stores.admission.admit(admission(Verb.INSTALL, node))
    await fail(stores)
    [failed] = await stores.intents.read_newest([node.id])
    assert (failed.state, failed.free_disk_at_end) == (IntentState.DEAD_LETTERED, 5)
    assert failed.epoch_at_end == node.epoch


async def test_what_only_a_person_may_try_again_is_noted_and_so_are_the_conditions_of_its_node(
    stores: Stores, rig: Rig
) -> None:
    node = await healthy(stores, "a")
    rig.run_sql("""UPDATE nodes SET conditions = '[{"kind": "disk_pressure", "reason": "", "remedy": ""}]'""")
    operation = (await stores.admission.admit(admission(Verb.UPGRADE, node))).id
    [one] = await claim(stores)
    await end(stores, one, AttemptRejected("it does not start", final=True))
    [failed] = await stores.intents.read_newest([node.id])
    assert (failed.state, failed.final, failed.conditions_at_end) == (
        IntentState.DEAD_LETTERED,
        True,
        frozenset({"disk_pressure"}),
    )
    await stores.operations.retry(operation, node_id=None, actor="me")
    [again] = await stores.intents.read_newest([node.id])
    assert not again.final
    await fail(stores)
    [exhausted] = await stores.intents.read_newest([node.id])
    assert (exhausted.state, exhausted.final) == (IntentState.DEAD_LETTERED, False)


class CountingDatabase:
    """Counts the rows that its reads fetch."""

    def __init__(self, database: Database) -> None:
        self._database, self.rows = database, 0

    async def read(self, body: Body[T]) -> T:
        return await self._database.read(lambda tx: body(cast("Tx", _CountingTx(tx, self))))


class _CountingTx:
    def __init__(self, tx: Tx, counting: CountingDatabase) -> None:
        self._tx, self._counting = tx, counting

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        rows = await self._tx.fetch(sql, *args)
        self._counting.rows += len(rows)
        return rows


async def test_what_a_cancel_brings_back_is_found_without_reading_the_whole_history(stores: Stores, rig: Rig) -> None:
    nodes = [await healthy(stores, name) for name in ("a", "b")]
    for _ in range(5):
        await done(stores, admission(Verb.INSTALL, *nodes))
    upgrade = (await stores.admission.admit(admission(Verb.UPGRADE, *nodes))).id
    await stores.operations.cancel(upgrade, actor="me")
    newest = await stores.intents.read_newest()
    counting = CountingDatabase(await rig.open())
    found = await IntentStore(cast("Database", counting)).read_restored(newest)
    assert {one.node_id for one in found} == {node.id for node in nodes}
    assert counting.rows == len(nodes)


async def test_a_second_failed_correction_replaces_the_first_one_in_the_list_and_the_request_stays(
    stores: Stores,
) -> None:
    node = await healthy(stores, "a")
    asked = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
    await fail(stores)
    corrections = []
    for _ in range(2):
        [newest] = await stores.intents.read_newest([node.id])
        correction = admission(Verb.INSTALL, node, cause="policy")
        order = replace(correction.intents[0], expected_generation=newest.generation)
        corrections.append((await stores.admission.admit(replace(correction, intents=(order,)))).id)
        await fail(stores)
    shown = {operation.id for operation in await stores.operations.read_open()}
    assert shown == {asked, corrections[1]}


async def test_a_pending_intent_gets_the_version_its_reference_resolves_to_now(stores: Stores) -> None:
    node = await healthy(stores, "a")
    operation = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
    [one] = await claim(stores)
    await end(stores, one, AttemptRejected("no such manifest"))
    [stuck] = await stores.intents.read_newest([node.id])
    now = replace(stuck.spec, build=replace(stuck.spec.build, digest="sha256:now"))
    assert await stores.admission.renew(stuck, now, "looked up again")
    [renewed] = await stores.intents.read_newest([node.id])
    assert (renewed.spec.build.digest, renewed.attempts, renewed.id) == ("sha256:now", 0, stuck.id)
    [shown] = (await stores.operations.read_one(operation)).nodes
    assert (shown.digest, shown.error, shown.status.value) == ("sha256:now", "looked up again", "queued")
    await claim(stores)
    assert not await stores.admission.renew(renewed, now, "while it is carried out")


def fleet_wide(verb: Verb, node: Node, *, pinned: str | None = None, follows: bool = False) -> Admission:
    spec = BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", digest=pinned or NEW), pinned=bool(pinned))
    asked = replace(admission(verb, node, spec=spec), target=Target())
    change = PinChange(follows=follows, specs=(spec,) if pinned else (), reason="it crashed")
    return replace(asked, pin=change if pinned or follows else None)


async def pinned(stores: Stores) -> list[str]:
    """What each pin in force says, oldest first."""
    return ["follow" if pin.follows else pin.specs[0].build.digest for pin in await stores.version_pins.read_all()]


async def test_a_pin_holds_until_somebody_says_otherwise_and_a_cancel_takes_that_back(stores: Stores) -> None:
    node = await healthy(stores, "a")
    rollback = (await stores.admission.admit(fleet_wide(Verb.ROLLBACK, node, pinned=OLD))).id
    [pin] = await stores.version_pins.read_all()
    assert (pin.backend, pin.target, pin.operation_id, pin.created_by) == ("echo", Target(), rollback, "test")
    assert (pin.reason, pin.created_at > 0) == ("it crashed", True)
    for verb in (Verb.INSTALL, Verb.UPGRADE):
        await stores.admission.admit(fleet_wide(verb, node))
        assert await pinned(stores) == [OLD], "what says nothing of versions changes no pin"
    upgrade = (await stores.admission.admit(fleet_wide(Verb.UPGRADE, node, follows=True))).id
    assert await pinned(stores) == ["follow"]
    await stores.operations.cancel(upgrade, actor="me")
    assert await pinned(stores) == [OLD], "what it had ended holds again"
    again = (await stores.admission.admit(fleet_wide(Verb.ROLLBACK, node, pinned="sha256:older"))).id
    assert await pinned(stores) == ["sha256:older"]
    await stores.operations.cancel(again, actor="me")
    assert await pinned(stores) == [OLD]
    await stores.operations.retry(again, node_id=None, actor="me")
    assert await pinned(stores) == ["sha256:older"]
    delete = (await stores.admission.admit(fleet_wide(Verb.DELETE, node))).id
    assert await pinned(stores) == []
    await stores.operations.cancel(delete, actor="me")
    assert await pinned(stores) == ["sha256:older"]


async def test_a_backend_that_follows_again_is_not_brought_to_the_version_that_was_pinned(stores: Stores) -> None:
    """The pinned version may not exist: its install would be retried for ever."""
    node = await healthy(stores, "a")
    pin = (await stores.admission.admit(fleet_wide(Verb.PIN, node, pinned="sha256:mistyped"))).id
    elsewhere = replace(fleet_wide(Verb.PIN, node, pinned="sha256:other"), backend="other")
    spec = replace(elsewhere.intents[0].spec, reference="other", build=BuildRef(name="other", digest="sha256:other"))
    other = replace(elsewhere, intents=(replace(elsewhere.intents[0], backend="other", spec=spec),))
    kept = (await stores.admission.admit(other)).id
    follow = (await stores.admission.admit(replace(fleet_wide(Verb.FOLLOW, node, follows=True), intents=()))).id
    ended = await stores.operations.read_one(pin)
    assert (ended.state.value, ended.nodes[0].status.value) == ("cancelled", "cancelled")
    assert f"no longer pinned (operation {follow})" in ended.nodes[0].error
    assert await claim(stores) is not None, "the pin of another backend holds"
    assert (await stores.operations.read_one(kept)).finished_at is None


async def test_retrying_a_cancelled_upgrade_ends_the_pin_again_but_not_a_newer_one(stores: Stores) -> None:
    node = await healthy(stores, "a")
    await stores.admission.admit(fleet_wide(Verb.ROLLBACK, node, pinned=OLD))
    upgrade = (await stores.admission.admit(fleet_wide(Verb.UPGRADE, node, follows=True))).id
    await stores.operations.cancel(upgrade, actor="me")
    await stores.operations.retry(upgrade, node_id=None, actor="me")
    assert await pinned(stores) == ["follow"], "what is being upgraded is not held back"
    await stores.operations.cancel(upgrade, actor="me")
    assert await pinned(stores) == [OLD]
    elsewhere = replace(fleet_wide(Verb.ROLLBACK, node, pinned="sha256:older"), intents=())
    await stores.admission.admit(elsewhere)
    await stores.operations.retry(upgrade, node_id=None, actor="me")
    assert (await pinned(stores))[-1] == "sha256:older", "that was decided later"


async def test_pins_of_some_nodes_stand_beside_those_of_all_and_replace_only_their_own(stores: Stores) -> None:
    node = await healthy(stores, "a")
    everywhere = fleet_wide(Verb.ROLLBACK, node, pinned=OLD)
    await stores.admission.admit(everywhere)
    for target in (Target(selector={"tier": "fast"}), Target(nodes=(node.id,))):
        for digest in ("sha256:one", "sha256:two"):
            await stores.admission.admit(replace(fleet_wide(Verb.UPGRADE, node, pinned=digest), target=target))
    assert await pinned(stores) == [OLD, "sha256:two", "sha256:two"]
    assert [pin.target.nodes for pin in await stores.version_pins.read_all()] == [(), (), (node.id,)]
    await stores.admission.admit(fleet_wide(Verb.UPGRADE, node, follows=True))
    assert await pinned(stores) == ["follow"], "a decision for all nodes replaces those for some"


async def test_the_digest_of_a_pinned_version_is_stored_for_each_build_while_the_pin_holds(stores: Stores) -> None:
    node = await healthy(stores, "a")
    await stores.admission.admit(fleet_wide(Verb.ROLLBACK, node, pinned=OLD))
    [pin] = await stores.version_pins.read_all()
    cuda = BackendSpec(reference="echo", build=BuildRef(name="cuda-echo", digest="sha256:c"), pinned=True)
    assert await stores.version_pins.save_build(pin.id, cuda, reason="cuda-echo joined")
    [now] = await stores.version_pins.read_all()
    assert {spec.build.name: spec.build.digest for spec in now.specs} == {"cpu-echo": OLD, "cuda-echo": "sha256:c"}
    await stores.admission.admit(fleet_wide(Verb.UPGRADE, node, follows=True))
    assert not await stores.version_pins.save_build(pin.id, cuda, reason="too late")


async def test_why_an_intent_cannot_succeed_is_shown_with_it(stores: Stores) -> None:
    node = await healthy(stores, "a")
    operation = (await stores.admission.admit(admission(Verb.INSTALL, node))).id
    [waiting] = await stores.intents.read_newest([node.id])
    assert await stores.admission.explain(waiting, "its source no longer has it")
    assert not await stores.admission.explain(waiting, "its source no longer has it"), "nothing new"
    [shown] = (await stores.operations.read_one(operation)).nodes
    assert shown.error == "its source no longer has it"
    await claim(stores)
    assert not await stores.admission.explain(waiting, "something else"), "it is being tried"


async def test_the_last_resolved_build_is_stored(stores: Stores) -> None:
    for build in ("one", "two", "one"):
        await stores.resolved_builds.save("echo", {"default": build})
        assert await stores.resolved_builds.read("echo") == {"default": build}
