"""What administrators change, who did it, and what is kept of secrets."""

import asyncio

import pytest

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.nodes.node import NodeStatus
from corral.store.access.api_keys import Scope, hash_secret
from corral.store.engine.database import StoreConflict
from corral.store.stores import Stores
from harness.databases import Rig
from harness.machines import Machine, actions, join, register

M = Machine()
KEY = "ck_admin_0123456789abcdefghijklmnopqrstuvwxyz"
TOKEN = "join-0123456789abcdefghijklmnopqrstuvwxyz"
SESSION = "session-0123456789abcdefghijklmnopqrstuvwxyz"


# Nodes


async def test_approving_is_done_once_and_by_someone(stores: Stores) -> None:
    node = await register(stores, M)
    assert (await stores.nodes.approve(node.id, actor="ann")).status is NodeStatus.UNHEALTHY
    with pytest.raises(InvalidInput, match="already approved"):
        await stores.nodes.approve(node.id, actor="bob")
    events = [event for event in await stores.events.read_latest(limit=10) if event.action == "node.approved"]
    assert [(event.actor, event.subject, event.detail) for event in events] == [("ann", node.id, {"name": "worker-1"})]


async def test_every_change_leaves_an_event_and_no_change_leaves_none(stores: Stores) -> None:
    node = await join(stores, M)
    for _ in range(2):
        await stores.nodes.set_drain(node.id, True, actor="ann")
    for _ in range(2):
        await stores.nodes.set_drain(node.id, False, actor="ann")
    for _ in range(2):
        await stores.nodes.set_labels(node.id, {"a": "1"}, keep=True, actor="ann")
    await stores.nodes.delete_label(node.id, "a", actor="ann")
    await stores.nodes.set_max_replicas(node.id, 2, actor="ann")
    await stores.nodes.set_vram_budget(node.id, "50%", actor="ann")
    await stores.nodes.remove(node.id, actor="ann")
    told = [action for action in await actions(stores, node.id) if action not in ("node.registered", "node.healthy")]
    assert told == [
        "node.drained",
        "node.resumed",
        "node.labelled",
        "node.labelled",
        "node.max_replicas",
        "node.vram_budget",
        "node.removed",
    ]


async def test_labels_are_merged_or_replaced_and_the_workers_own_are_not_touched(stores: Stores) -> None:
    node = await register(stores, M, labels={"zone": "a"})
    await stores.nodes.set_labels(node.id, {"x": "1", "y": "1"}, keep=False, actor="ann")
    merged = await stores.nodes.set_labels(node.id, {"y": "2"}, keep=True, actor="ann")
    assert merged.operator_labels == {"x": "1", "y": "2"}
    replaced = await stores.nodes.set_labels(node.id, {"z": "3"}, keep=False, actor="ann")
    assert (replaced.operator_labels, replaced.worker_labels) == ({"z": "3"}, {"zone": "a"})
    with pytest.raises(NotFound, match="zone"):
        await stores.nodes.delete_label(node.id, "zone", actor="ann")


async def test_a_refused_change_changes_nothing_and_leaves_no_event(stores: Stores) -> None:
    node = await join(stores, M)
    before = await actions(stores, node.id)
    with pytest.raises(InvalidInput):
        await stores.nodes.set_labels(node.id, {"bad key!": "1"}, keep=True, actor="ann")
    with pytest.raises(InvalidInput):
        await stores.nodes.set_vram_budget(node.id, "-5%", actor="ann")
    with pytest.raises(NotFound):
        await stores.nodes.remove("nope", actor="ann")
    assert await stores.nodes.read_one(node.id) == node
    assert await actions(stores, node.id) == before


async def test_an_override_that_is_taken_back_uncovers_what_the_worker_reports(stores: Stores) -> None:
    node = await register(stores, M, max_replicas_per_model=2, vram_budget="10GB")
    await stores.nodes.set_max_replicas(node.id, 5, actor="ann")
    await stores.nodes.set_vram_budget(node.id, "80%", actor="ann")
    await stores.nodes.set_max_replicas(node.id, None, actor="ann")
    after = await stores.nodes.set_vram_budget(node.id, "", actor="ann")
    assert (after.max_replicas_per_model, after.vram_budget) == (2, "10GB")


async def test_changes_since_a_moment_are_found_and_removals_among_them(stores: Stores, rig: Rig) -> None:
    one = await register(stores, M)
    two = await register(stores, Machine(name="worker-2", secret="second"))
    await rig.advance(10)
    since = await stores.nodes.now_ms()
    assert await stores.nodes.read_changes(since) == (since, [], [])
    await stores.nodes.approve(one.id, actor="ann")
    await stores.nodes.remove(two.id, actor="ann")
    now, changed, removed = await stores.nodes.read_changes(since)
    assert (now, [node.id for node in changed], removed) == (since, [one.id], [two.id])


async def test_events_are_read_from_the_latest_backwards_in_pages(stores: Stores) -> None:
    for number in range(5):
        await stores.events.append(actor="ann", action="test", subject=str(number), detail={"n": number})
    first = await stores.events.read_latest(limit=2)
    second = await stores.events.read_latest(limit=10, before=first[-1].id)
    assert [event.subject for event in (*first, *second)] == ["4", "3", "2", "1", "0"]
    assert first[0].detail == {"n": 4}


# Keys, sessions, tokens


async def add_key(stores: Stores, *, id: str = "k1", name: str = "main", key: str = KEY) -> None:
    await stores.access.add_key(id=id, name=name, scope=Scope.ADMIN, key=key, actor="first start")


async def add_another_admin(stores: Stores) -> None:
    """So that the key under test is not the last one, which cannot be revoked."""
    await add_key(stores, id="spare", name="spare", key="the spare key")


async def test_no_secret_is_kept_in_plain_anywhere(stores: Stores, rig: Rig) -> None:
    await add_key(stores)
    await stores.access.open_session("k1", SESSION, ttl_s=60)
    await stores.access.add_join_token(TOKEN)
    machine = Machine(secret="node-0123456789zyxwvutsrqponmlkjihgfedcba")
    await join(stores, machine)
    rest = rig.dump()
    assert all(
        hash_secret(secret).encode() in rest for secret in (KEY, SESSION, TOKEN)
    )  # the search does look at what is stored
    for secret in (KEY, SESSION, TOKEN, str(machine.secret)):
        assert secret.encode() not in rest
        assert secret[12:].encode() not in rest


async def test_a_key_is_found_by_its_hash_until_it_is_revoked(stores: Stores) -> None:
    await add_another_admin(stores)
    await add_key(stores)
    found = await stores.access.find_key(hash_secret(KEY))
    assert found is not None
    assert (found.id, found.scope, found.hint) == ("k1", Scope.ADMIN, KEY[:11])
    assert await stores.access.find_key(hash_secret("other")) is None
    await stores.access.revoke_key("main", actor="ann")
    assert await stores.access.find_key(hash_secret(KEY)) is None
    revoked = {key.id: key.revoked_at is not None for key in await stores.access.read_keys()}
    assert revoked == {"k1": True, "spare": False}
    assert await actions(stores, "k1") == ["key.created", "key.revoked"]


async def test_offering_the_same_key_again_changes_nothing_not_even_a_revocation(stores: Stores) -> None:
    await add_another_admin(stores)
    await add_key(stores)
    await stores.access.revoke_key("k1", actor="ann")
    await add_key(stores, id="k2")
    assert {key.id for key in await stores.access.read_keys()} == {"k1", "spare"}
    assert await stores.access.find_key(hash_secret(KEY)) is None


async def test_the_same_id_for_another_key_is_a_conflict(stores: Stores) -> None:
    await add_key(stores)
    with pytest.raises(StoreConflict):
        await add_key(stores, key="another key")


async def test_the_last_admin_key_cannot_be_revoked_even_by_two_at_once(stores: Stores) -> None:
    await add_key(stores)
    await add_key(stores, id="k2", name="second", key="another key")
    await stores.access.add_key(id="k3", name="reader", scope=Scope.USER, key="a user's key", actor="ann")
    ended = await asyncio.gather(
        stores.access.revoke_key("k1", actor="ann"), stores.access.revoke_key("k2", actor="bob"), return_exceptions=True
    )
    assert sorted(isinstance(one, Conflict) for one in ended) == [False, True]
    left = [key.id for key in await stores.access.read_keys() if key.revoked_at is None]
    assert len(left) == 2
    assert "k3" in left


async def test_a_name_two_keys_share_revokes_neither(stores: Stores) -> None:
    await add_key(stores)
    await add_key(stores, id="k2", key="another key")
    with pytest.raises(NotFound, match="use the id of the key"):
        await stores.access.revoke_key("main", actor="ann")
    assert (await stores.access.revoke_key("k2", actor="ann")).id == "k2"
    assert await stores.access.find_key(hash_secret(KEY)) is not None
    with pytest.raises(NotFound):
        await stores.access.revoke_key("k2", actor="ann")


async def test_a_session_ends_by_time_by_sign_out_and_with_its_key(stores: Stores, rig: Rig) -> None:
    await add_another_admin(stores)
    await add_key(stores)
    for number in range(3):
        await stores.access.open_session("k1", f"{SESSION}{number}", ttl_s=60 * (number + 1))
    hashes = [hash_secret(f"{SESSION}{number}") for number in range(3)]
    await rig.advance(60)
    assert [await stores.access.find_session(one) is not None for one in hashes] == [False, True, True]
    await stores.access.close_session(hashes[1])
    assert [await stores.access.find_session(one) is not None for one in hashes] == [False, False, True]
    await stores.access.revoke_key("k1", actor="ann")
    assert await stores.access.find_session(hashes[2]) is None


async def test_join_tokens_are_known_by_hash_and_say_whether_they_approve(stores: Stores) -> None:
    await stores.access.add_join_token(TOKEN)
    await stores.access.add_join_token("local", approves=True)
    await stores.access.add_join_token(TOKEN, approves=True)  # does not become stronger by being offered again
    assert await stores.access.read_join_tokens() == {hash_secret(TOKEN): False, hash_secret("local"): True}


# Frontends


async def test_frontends_are_live_while_they_report(stores: Stores, rig: Rig) -> None:
    await stores.frontends.report(id="one", url="http://one", version="1")
    await rig.advance(20)
    await stores.frontends.report(id="two", url="http://two", version="1")
    assert [(row.id, row.age_s) for row in await stores.frontends.read_live(within_s=30)] == [("one", 20), ("two", 0)]
    await rig.advance(15)
    assert [row.id for row in await stores.frontends.read_live(within_s=30)] == ["two"]
    await stores.frontends.leave("two")
    assert await stores.frontends.read_live(within_s=30) == []


async def test_a_frontend_that_restarts_elsewhere_is_listed_with_its_new_address(stores: Stores) -> None:
    await stores.frontends.report(id="one", url="http://one", version="1")
    await stores.frontends.report(id="one", url="http://other", version="2")
    [row] = await stores.frontends.read_live(within_s=30)
    assert (row.url, row.version) == ("http://other", "2")


# The audit log


async def _fill_audit(stores: Stores, count: int) -> None:
    for number in range(count):
        await stores.events.append(actor="ann", action="test", subject=str(number))


async def test_the_audit_log_is_kept_to_the_newest_entries(stores: Stores) -> None:
    await _fill_audit(stores, 12)
    assert await stores.events.trim(keep_s=3600, most=5, at_once=4) == 4
    assert await stores.events.trim(keep_s=3600, most=5, at_once=4) == 3
    assert await stores.events.trim(keep_s=3600, most=5, at_once=4) == 0
    assert [event.subject for event in await stores.events.read_latest(limit=100)] == ["11", "10", "9", "8", "7"]


async def test_old_entries_of_the_audit_log_are_forgotten(rig: Rig, stores: Stores) -> None:
    await _fill_audit(stores, 3)
    rig.run_sql("UPDATE audit_events SET at = at - 7200000 WHERE subject <> '2'")
    assert await stores.events.trim(keep_s=3600, most=100, at_once=10) == 2
    assert [event.subject for event in await stores.events.read_latest(limit=100)] == ["2"]


async def test_the_audit_log_is_read_from_a_time_on(rig: Rig, stores: Stores) -> None:
    await _fill_audit(stores, 3)
    rig.run_sql("UPDATE audit_events SET at = at - 7200000 WHERE subject = '0'")
    now_ms = await stores.nodes.now_ms()
    recent = await stores.events.read_latest(limit=100, since_ms=now_ms - 3600_000)
    assert [event.subject for event in recent] == ["2", "1"]
