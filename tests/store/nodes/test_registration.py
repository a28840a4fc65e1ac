"""Who registers, and what stays theirs."""

import asyncio
from dataclasses import replace

import pytest

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.nodes.node import Node, NodeStatus
from corral.core.nodes.presence import Presence
from corral.core.nodes.registration import CLAIMS_MOST, Refuse
from corral.store.nodes.registration import Claimed, Registered
from corral.store.stores import Stores
from harness.databases import Rig
from harness.machines import Machine, actions, beat, claim_name, join, judge, register, replace_by, try_register

M = Machine()
OTHER = Machine(name="worker-1", secret="another secret", process="other-1")
GO = Machine(name="go-worker", secret=None)


async def vanish(stores: Stores, rig: Rig, node: Node) -> None:
    await rig.advance(120)
    await judge(stores, nobody=(node.id,))
    await judge(stores, nobody=(node.id,))
    assert (await stores.nodes.read_one(node.id)).presence is Presence.GONE


async def set_by_operator(stores: Stores, node: Node) -> Node:
    await stores.nodes.set_labels(node.id, {"tier": "gold"}, keep=False, actor="ann")
    await stores.nodes.set_max_replicas(node.id, 3, actor="ann")
    await stores.nodes.set_vram_budget(node.id, "80%", actor="ann")
    return await stores.nodes.set_drain(node.id, True, actor="ann")


def operator_part(node: Node) -> tuple[object, ...]:
    return (
        dict(node.operator_labels),
        node.max_replicas_override,
        node.vram_budget_override,
        node.drain_requested,
        node.created_at,
    )


async def test_a_new_machine_waits_for_approval(stores: Stores) -> None:
    node = await register(stores, M)
    assert (node.status, node.epoch, node.name) == (NodeStatus.PENDING, 1, "worker-1")
    assert await stores.nodes.read_one(node.id) == node
    assert await actions(stores, node.id) == ["node.registered"]


async def test_with_auto_approval_it_does_not_wait_but_is_not_healthy_before_it_was_seen(stores: Stores) -> None:
    node = await register(stores, M, auto_approve=True)
    assert (node.approved, node.status) == (True, NodeStatus.UNHEALTHY)


async def test_an_unknown_machine_without_a_token_is_not_recognised_and_leaves_no_trace(stores: Stores) -> None:
    outcome = await try_register(stores, M, may_join=False)
    assert isinstance(outcome, Refuse)
    assert outcome.reason == "not_recognised"
    assert await stores.nodes.read_all() == []


async def test_a_known_machine_needs_no_token_any_more(stores: Stores) -> None:
    node = await register(stores, M)
    assert (await register(stores, M.restarted(), may_join=False)).id == node.id


async def test_a_renewal_keeps_what_runs(stores: Stores) -> None:
    node = await join(stores, M, bus_key="UA")
    again = await try_register(stores, M, may_join=False, bus_key="UA", available_ram=7)
    assert isinstance(again, Registered)
    assert not again.new_process
    assert (again.node.status, again.node.epoch, again.node.id) == (NodeStatus.HEALTHY, 1, node.id)
    assert again.node.available_ram == 7
    assert await stores.bus_credentials.read_revoked() == {}


async def test_a_new_process_is_a_new_epoch_and_the_old_ones_credentials_are_void(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M, bus_key="UA")
    await rig.advance(5)
    again = await try_register(stores, M.restarted(), bus_key="UB")
    assert isinstance(again, Registered)
    assert again.new_process
    assert (again.node.id, again.node.epoch, again.node.approved) == (node.id, 2, True)
    assert again.node.presence is Presence.JOINING
    assert not again.node.bus_answered
    assert list(await stores.bus_credentials.read_revoked()) == ["UA"]
    assert (await actions(stores, node.id))[-1] == "node.returned"


async def test_what_an_operator_set_survives_renewal_restart_and_wipe(stores: Stores, rig: Rig) -> None:
    """INV-29."""
    node = await set_by_operator(stores, await join(stores, M))
    expected = operator_part(node)
    reported = {"labels": {"tier": "worker's"}, "max_replicas_per_model": 9, "vram_budget": "10%"}
    assert operator_part(await register(stores, M, **reported)) == expected
    assert operator_part(await register(stores, M.restarted(), **reported)) == expected
    await vanish(stores, rig, node)
    wiped = await replace_by(stores, OTHER, **reported)
    assert wiped.id == node.id
    assert operator_part(wiped) == expected
    assert (wiped.max_replicas_per_model, wiped.vram_budget) == (3, "80%")
    assert wiped.worker_labels == {"tier": "worker's"}


@pytest.mark.parametrize("auto_approve", [False, True])
async def test_who_takes_the_name_of_an_absent_machine_only_claims_it(
    stores: Stores, rig: Rig, auto_approve: bool
) -> None:
    """M3: with the registration token anybody could take an absent machine's identity."""
    node = await set_by_operator(stores, await join(stores, M, bus_key="UA"))
    await vanish(stores, rig, node)
    for _ in range(3):
        claimed = await claim_name(
            stores, OTHER, bus_key="UB", auto_approve=auto_approve, registered_from="10.0.0.9", labels={"x": "y"}
        )
    assert claimed.claim.source_address == "10.0.0.9"
    found = await stores.nodes.read_one(node.id)
    assert (found.approved, found.epoch, found.key_hash, found.worker_labels) == (True, 1, node.key_hash, {})
    assert [claim.id for claim in found.claims] == [claimed.claim.id]
    assert (await actions(stores, node.id)).count("node.claimed") == 1
    # Nothing was handed out, nothing was taken away: the machine that was approved comes back as if nothing had been.
    assert rig.run_sql("SELECT public_key FROM bus_credentials") == ["UA"]
    assert await stores.bus_credentials.read_revoked() == {}
    assert (await beat(stores, M, node)).accepted
    assert (await beat(stores, OTHER, node)).denied
    back = await register(stores, M.restarted(), may_join=False)
    assert (back.id, back.approved, operator_part(back)) == (node.id, True, operator_part(node))


async def test_a_wiped_machine_comes_back_under_its_name_when_an_administrator_says_so(
    stores: Stores, rig: Rig
) -> None:
    node = await set_by_operator(stores, await join(stores, M, bus_key="UA"))
    await vanish(stores, rig, node)
    claimed = await claim_name(stores, OTHER, bus_key="UB")
    with pytest.raises(InvalidInput, match=f"{claimed.claim.id[:8]}.*--claim"):
        await stores.nodes.approve(node.id, actor="ann")
    await stores.nodes.replace_identity(node.name, claimed.claim.id[:8], actor="ann")
    assert list(await stores.bus_credentials.read_revoked()) == ["UA"]
    wiped = await register(stores, OTHER, bus_key="UB", may_join=False)
    assert (wiped.id, wiped.approved, wiped.claims, operator_part(wiped)) == (node.id, True, (), operator_part(node))
    assert wiped.epoch > node.epoch
    assert (await beat(stores, OTHER, wiped)).accepted
    # The old secret opens nothing any more.
    assert (await beat(stores, M, wiped)).denied
    assert isinstance(await try_register(stores, M, may_join=False), Refuse)
    assert (await actions(stores, node.id))[-2:] == ["node.replaced", "node.returned"]


async def test_a_rejected_claim_is_refused_when_it_is_made_again(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    await vanish(stores, rig, node)
    claimed = await claim_name(stores, OTHER)
    await stores.nodes.reject_claim(node.id, claimed.claim.id, actor="ann")
    again = await try_register(stores, OTHER)
    assert isinstance(again, Refuse)
    assert "rejected" in again.message
    assert (await register(stores, M.restarted())).approved
    await rig.advance(25 * 3600)
    await judge(stores, nobody=(node.id,))
    await judge(stores, nobody=(node.id,))
    assert isinstance(await try_register(stores, OTHER), Claimed), "a day later it may ask again"


async def test_a_machine_that_tried_before_it_could_claim_is_warned_of_once(stores: Stores, rig: Rig) -> None:
    """While the node was there, it was refused; what was noted then goes when the claim says it, and is not left over
    when the claim is rejected."""
    node = await join(stores, M)
    assert isinstance(await try_register(stores, OTHER), Refuse)
    assert (await stores.nodes.read_one(node.id)).conflict_message is not None
    await vanish(stores, rig, node)
    claimed = await claim_name(stores, OTHER)
    assert (await stores.nodes.read_one(node.id)).conflict_message is None
    await stores.nodes.reject_claim(node.id, claimed.claim.id, actor="ann")
    assert (await stores.nodes.read_one(node.id)).conflict_message is None


async def test_claims_on_a_name_are_bounded(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    await vanish(stores, rig, node)
    honest = await claim_name(stores, OTHER)
    for number in range(30):
        await try_register(stores, replace(OTHER, secret=f"flood {number}"))
    found = await stores.nodes.read_one(node.id)
    assert len(found.claims) == CLAIMS_MOST
    assert found.claims[0].id == honest.claim.id
    refused = await try_register(stores, replace(OTHER, secret="one more"))
    assert isinstance(refused, Refuse)


async def test_a_claim_of_a_machine_that_joined_elsewhere_is_void(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    await vanish(stores, rig, node)
    claimed = await claim_name(stores, OTHER)
    await register(stores, replace(OTHER, name="elsewhere"))
    with pytest.raises(Conflict, match="elsewhere"):
        await stores.nodes.replace_identity(node.id, claimed.claim.id, actor="ann")


async def test_a_pending_machine_that_went_offline_leaves_its_name_to_another(stores: Stores, rig: Rig) -> None:
    """Nobody had approved it: there is no identity to protect."""
    node = await register(stores, M)
    await vanish(stores, rig, node)
    other = await register(stores, OTHER, auto_approve=True)
    assert (other.id, other.status) == (node.id, NodeStatus.PENDING)


async def test_a_localai_worker_is_bound_to_its_address(stores: Stores) -> None:
    """It has no secret: with the token anybody got its name, its approval and a bus credential."""
    node = await register(stores, GO, auto_approve=True, bus_key="UA", registered_from="10.0.0.5")
    assert (await register(stores, GO, registered_from="10.0.0.5")).id == node.id
    thief = await claim_name(stores, GO, auto_approve=True, bus_key="UB", registered_from="10.0.0.66")
    assert (thief.node.id, thief.claim.key_hash) == (node.id, None)
    assert (await stores.registration.record_heartbeats([GO.beat(node, source_address="10.0.0.5")]))[0].accepted
    assert (await stores.registration.record_heartbeats([GO.beat(node, source_address="10.0.0.66")]))[0].denied
    await stores.nodes.replace_identity(node.id, thief.claim.id, actor="ann")
    moved = await register(stores, GO, registered_from="10.0.0.66")
    assert (moved.id, moved.approved, moved.registered_from) == (node.id, True, "10.0.0.66")
    assert isinstance(await try_register(stores, GO, registered_from="10.0.0.5"), Claimed)


async def test_a_pending_localai_worker_is_not_swapped_for_another(stores: Stores) -> None:
    node = await register(stores, GO, registered_from="10.0.0.5")
    claimed = await claim_name(stores, GO, registered_from="10.0.0.66")
    with pytest.raises(InvalidInput, match="--claim"):
        await stores.nodes.approve(node.id, actor="ann")
    approved = await stores.nodes.approve(node.id, actor="ann", despite_claims=True)
    assert (approved.approved, approved.registered_from) == (True, "10.0.0.5")
    assert [claim.id for claim in approved.claims] == [claimed.claim.id]


@pytest.mark.parametrize("name", ["WORKER-1", "worker\u20101", "w\u043erker-1", "\uff57orker-1", "worker-1\u200b"])
async def test_a_name_that_looks_like_anothers_is_refused(stores: Stores, name: str) -> None:
    await register(stores, M)
    refused = await try_register(stores, Machine(name=name, secret="s"), auto_approve=True)
    assert isinstance(refused, Refuse)
    assert "looks like 'worker-1'" in refused.message
    other = await register(stores, Machine(name="worker-2", secret="s"))
    renamed = await try_register(stores, Machine(name=name, secret="s"))
    assert isinstance(renamed, Refuse)
    assert (await stores.nodes.read_one(other.id)).name == "worker-2"


async def test_the_name_of_a_live_machine_is_refused_and_the_conflict_is_shown(stores: Stores) -> None:
    node = await join(stores, M)
    outcome = await try_register(stores, OTHER, http_address="10.0.0.9:50050")
    assert isinstance(outcome, Refuse)
    assert outcome.reason == "name_taken"
    holder = await stores.nodes.read_one(node.id)
    assert "10.0.0.9:50050" in (holder.conflict_message or "")
    assert (holder.status, holder.epoch, holder.key_hash) == (NodeStatus.HEALTHY, node.epoch, node.key_hash)
    assert (await actions(stores, node.id))[-1] == "node.conflict"
    # Asking again and again is one event, not many.
    await try_register(stores, OTHER, http_address="10.0.0.9:50050")
    assert (await actions(stores, node.id)).count("node.conflict") == 1


async def test_a_machine_may_take_a_new_name_but_not_one_that_is_taken(stores: Stores) -> None:
    node = await register(stores, M)
    renamed = await register(stores, replace(M, name="worker-9"))
    assert (renamed.id, renamed.name, renamed.epoch) == (node.id, "worker-9", 1)
    await register(stores, Machine(name="worker-2", secret="second"))
    refused = await try_register(stores, replace(M, name="worker-2"))
    assert isinstance(refused, Refuse)
    assert (await stores.nodes.read_one(node.id)).name == "worker-9"


async def test_a_localai_worker_has_no_secret_and_is_known_by_its_name(stores: Stores) -> None:
    node = await register(stores, GO, auto_approve=True)
    assert (node.key_hash, node.instance) == (None, None)
    again = await register(stores, GO)
    assert (again.id, again.epoch, again.approved) == (node.id, 1, True)
    assert (await beat(stores, GO, node)).accepted


async def test_a_machine_with_a_secret_cannot_be_taken_over_by_one_without(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    keyless = Machine(name=M.name, secret=None)
    assert isinstance(await try_register(stores, keyless), Refuse)
    assert (await beat(stores, keyless, node)).denied
    await vanish(stores, rig, node)
    assert (await claim_name(stores, keyless, auto_approve=True)).node.key_hash == node.key_hash


async def test_a_secret_cannot_take_over_a_live_localai_worker(stores: Stores) -> None:
    await join(stores, GO)
    outcome = await try_register(stores, Machine(name=GO.name, secret="s"))
    assert isinstance(outcome, Refuse)


@pytest.mark.parametrize("machine", [M, GO], ids=["corral", "localai"])
@pytest.mark.parametrize("detour", ["deregister", "resume", "stale", "restart", "drain-and-resume"])
async def test_approval_cannot_be_got_by_a_detour(stores: Stores, rig: Rig, machine: Machine, detour: str) -> None:
    node = await register(stores, machine)
    match detour:
        case "deregister":
            await stores.registration.deregister(node.id)
        case "resume":
            await stores.registration.set_draining(node.id, False)
        case "drain-and-resume":
            await stores.registration.set_draining(node.id, True)
            await stores.registration.set_draining(node.id, False)
        case "stale":
            await rig.advance(3600)
            await judge(stores, nobody=(node.id,))
        case "restart":
            machine = machine.restarted()
    again = await register(stores, machine, bus_key="UA")
    await beat(stores, machine, again)
    await judge(stores, again.id)
    found = await stores.nodes.read_one(again.id)
    assert (found.approved, found.status) == (False, NodeStatus.PENDING)
    assert rig.run_sql("SELECT count(*) FROM bus_credentials") == ["0"]


async def test_saying_good_bye_lasts_until_the_next_registration(stores: Stores) -> None:
    node = await join(stores, M)
    left = await stores.registration.deregister(node.id)
    assert left.status is NodeStatus.OFFLINE
    await beat(stores, M, node)
    await judge(stores, node.id)
    assert (await stores.nodes.read_one(node.id)).status is NodeStatus.OFFLINE
    assert (await register(stores, M)).status is NodeStatus.UNHEALTHY
    await stores.registration.deregister(node.id)
    await stores.registration.deregister(node.id)
    assert (await actions(stores, node.id)).count("node.left") == 2


async def test_the_workers_own_draining_ends_with_its_process_an_operators_does_not(stores: Stores) -> None:
    node = await join(stores, M)
    assert (await stores.registration.set_draining(node.id, True)).status is NodeStatus.DRAINING
    assert not (await register(stores, M.restarted())).draining
    await stores.nodes.set_drain(node.id, True, actor="ann")
    assert (await register(stores, M.restarted("process-3"))).draining
    assert (await stores.registration.set_draining(node.id, False)).draining


async def test_a_removed_machine_is_unknown_and_joins_as_a_new_one(stores: Stores) -> None:
    node = await join(stores, M)
    await stores.nodes.remove(node.id, actor="ann")
    assert isinstance(await try_register(stores, M, may_join=False), Refuse)
    again = await register(stores, M)
    assert again.id != node.id
    assert (again.status, again.epoch) == (NodeStatus.PENDING, 1)


async def test_machines_that_register_at_once_under_one_name_make_one_node(stores: Stores) -> None:
    machines = [Machine(secret=f"secret {number}", process=f"p{number}") for number in range(6)]
    outcomes = await asyncio.gather(*(try_register(stores, machine) for machine in machines))
    assert sum(isinstance(outcome, Registered) for outcome in outcomes) == 1
    assert len(await stores.nodes.read_all()) == 1


async def test_one_machine_that_registers_many_times_at_once_is_one_node(stores: Stores) -> None:
    nodes = await asyncio.gather(*(register(stores, M) for _ in range(6)))
    assert len({node.id for node in nodes}) == 1
    assert (await stores.nodes.read_one(nodes[0].id)).epoch == 1


async def test_names_with_wildcards_of_the_bus_are_names_like_any_other(stores: Stores) -> None:
    names = ["a.b", "a-b", "*", ">", "nodes.>", "'; DROP TABLE nodes; --"]
    nodes = [await register(stores, Machine(name=name, secret=f"s{name}")) for name in names]
    assert len({node.id for node in nodes}) == len(names)
    assert not any(set(node.id) & set(".*> ") for node in nodes)
    assert {node.name for node in await stores.nodes.read_all()} == set(names)


# Bus credentials


async def test_removing_a_node_voids_every_credential_it_holds_and_no_others(stores: Stores, rig: Rig) -> None:
    first = await join(stores, M, bus_key="UA")
    await join(stores, Machine(name="worker-2", secret="second"), bus_key="UC")
    await rig.advance(3)
    await register(stores, M, bus_key="UB")
    await stores.nodes.remove(first.id, actor="ann")
    now_s = await stores.nodes.now_ms() // 1000
    assert await stores.bus_credentials.read_revoked() == {"UA": now_s, "UB": now_s}


async def test_a_revocation_is_remembered_as_long_as_the_credential_could_be_used(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M, bus_key="UA", bus_ttl_s=600)
    await stores.nodes.remove(node.id, actor="ann")
    await rig.advance(600 + 299)  # frontends' and servers' clocks may be minutes apart
    assert list(await stores.bus_credentials.read_revoked()) == ["UA"]
    await rig.advance(3600)
    assert await stores.bus_credentials.read_revoked() == {}
    await register(stores, M, auto_approve=True, bus_key="UB")
    assert rig.run_sql("SELECT public_key FROM bus_credentials") == ["UB"]


async def test_a_worker_that_was_removed_may_join_again_with_its_key_and_be_removed_again(
    stores: Stores, rig: Rig
) -> None:
    node = await join(stores, M, bus_key="UA")
    await stores.nodes.remove(node.id, actor="ann")
    first = (await stores.bus_credentials.read_revoked())["UA"]
    await rig.advance(10)
    again = await join(stores, M, bus_key="UA")
    assert await stores.bus_credentials.read_revoked() == {"UA": first}  # what it was handed since is valid
    await rig.advance(10)
    await stores.nodes.remove(again.id, actor="ann")
    assert await stores.bus_credentials.read_revoked() == {"UA": first + 20}


async def test_the_bus_key_of_another_machine_cannot_be_claimed(stores: Stores) -> None:
    owner = await join(stores, M, bus_key="UA")
    with pytest.raises(Conflict, match="belongs to another node"):
        await register(stores, Machine(name="thief", secret="s"), auto_approve=True, bus_key="UA")
    assert [node.name for node in await stores.nodes.read_all()] == ["worker-1"]
    await stores.nodes.remove(owner.id, actor="ann")
    assert list(await stores.bus_credentials.read_revoked()) == ["UA"]


async def test_asking_about_a_node_that_never_was_says_so(stores: Stores) -> None:
    for call in (stores.registration.deregister("nope"), stores.registration.set_draining("nope", True)):
        with pytest.raises(NotFound, match="nope"):
            await call


async def test_waits_are_timed_by_what_they_wait_for_not_by_the_last_change_of_a_row(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    await rig.advance(60)
    drained = await stores.nodes.set_drain(node.id, True, actor="ann")
    assert drained.drain_since == drained.changed_at > node.changed_at
    await rig.advance(60)
    await stores.nodes.add_refused({node.id: (1, "not to be read")})
    await stores.registration.set_draining(node.id, True)
    later = await stores.nodes.read_one(node.id)
    assert later.changed_at > drained.changed_at
    assert (later.draining_since, later.presence_since) == (drained.changed_at, node.presence_since)
    await stores.nodes.set_drain(node.id, False, actor="ann")
    resumed = await stores.registration.set_draining(node.id, False)
    assert resumed.drain_since is None
    await rig.advance(60)
    left = await stores.registration.set_draining(node.id, True)
    assert left.drain_since == left.changed_at, "a new drain is timed anew"


async def test_who_becomes_a_node_by_approval_is_new_from_then_on(stores: Stores, rig: Rig) -> None:
    node = await register(stores, M)
    await rig.advance(600)
    approved = await stores.nodes.approve(node.id, actor="ann")
    assert approved.presence is Presence.JOINING
    assert approved.presence_since == approved.changed_at > node.presence_since
    await vanish(stores, rig, node)
    claimed = await claim_name(stores, OTHER)
    back = await register(stores, M.restarted())
    await rig.advance(600)
    replaced = await stores.nodes.replace_identity(node.id, claimed.claim.id, actor="ann")
    assert (back.presence, replaced.presence) == (Presence.JOINING, Presence.JOINING)
    assert replaced.presence_since == replaced.changed_at > back.presence_since


async def test_a_node_that_is_offline_stays_so_while_its_process_only_renews_its_credential(
    stores: Stores, rig: Rig
) -> None:
    """As a worker does that has lost its way to the bus. It is healthy again when it is heard on both paths."""
    node = await join(stores, M)
    await vanish(stores, rig, node)
    assert (await register(stores, M)).status is NodeStatus.OFFLINE
    await beat(stores, M, node)
    await judge(stores, node.id)
    assert (await stores.nodes.read_one(node.id)).status is NodeStatus.HEALTHY


async def test_a_node_that_waits_for_approval_and_was_offline_is_there_again_when_it_registers(
    stores: Stores, rig: Rig
) -> None:
    node = await register(stores, M)
    await vanish(stores, rig, node)
    assert (await register(stores, M)).presence is Presence.JOINING
