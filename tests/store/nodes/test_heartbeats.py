"""Many heartbeats in one transaction, each judged by itself."""

from dataclasses import replace

from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.nodes.node import NodeId, NodeState, NodeStatus, NodeUsage
from corral.store.nodes.registration import Heartbeat
from corral.store.stores import Stores
from harness.databases import Rig
from harness.machines import Machine, actions, beat, join, register

M = Machine()
FULL = {
    "available_vram": 1,
    "total_vram": 2,
    "available_ram": 3,
    "available_disk": 4,
    "total_disk": 5,
    "gpu_vendor": "nvidia",
}


async def test_each_heartbeat_of_a_batch_has_its_own_outcome(stores: Stores, rig: Rig) -> None:
    second = Machine(name="worker-2", secret="second")
    one, two = await join(stores, M), await join(stores, second)
    await rig.advance(10)
    thief = replace(M, secret="guessed")
    outcomes = await stores.registration.record_heartbeats(
        [
            M.beat(one, available_ram=11),
            Heartbeat(node_id=NodeId("unknown"), usage=NodeUsage()),
            thief.beat(two, available_ram=666),
            second.restarted("older").beat(two, available_ram=667),
        ]
    )
    assert [(outcome.accepted, outcome.denied, outcome.fenced) for outcome in outcomes] == [
        (True, False, False),
        (False, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert outcomes[1].node is None
    assert (await stores.nodes.read_one(one.id)).available_ram == 11
    untouched = await stores.nodes.read_one(two.id)
    assert (untouched.available_ram, untouched.last_heartbeat) == (two.available_ram, two.last_heartbeat)


async def test_absent_values_keep_the_known_ones_and_zero_is_a_value(stores: Stores) -> None:
    node = await join(stores, M)
    await beat(stores, M, node, **FULL)
    await beat(stores, M, node)
    kept = await stores.nodes.read_one(node.id)
    assert {name: getattr(kept, name) for name in FULL} == FULL
    await beat(stores, M, node, available_disk=0, available_vram=0)
    zero = await stores.nodes.read_one(node.id)
    assert (zero.available_disk, zero.available_vram, zero.available_ram) == (0, 0, 3)


async def test_a_heartbeat_is_timed_by_the_stores_clock_and_changes_no_status(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    await rig.advance(3600)
    await beat(stores, M, node)
    after = await stores.nodes.read_one(node.id)
    assert after.last_heartbeat == await stores.nodes.now_ms()
    assert (after.status, after.changed_at) == (node.status, node.changed_at)


async def test_a_node_that_waits_for_approval_may_send_heartbeats(stores: Stores) -> None:
    node = await register(stores, M)
    assert (await beat(stores, M, node)).accepted


async def test_an_older_process_is_fenced_and_shown_once(stores: Stores) -> None:
    node = await join(stores, M)
    await register(stores, M.restarted())
    await stores.registration.record_heartbeats([M.beat(node), M.beat(node), M.beat(node)])
    await beat(stores, M, node)
    assert "older process" in ((await stores.nodes.read_one(node.id)).conflict_message or "")
    assert (await actions(stores, node.id)).count("node.conflict") == 1
    assert (await beat(stores, M.restarted(), node)).accepted


async def test_a_corral_node_needs_its_own_secret_and_names_its_process(stores: Stores) -> None:
    node = await join(stores, M)
    own = M.beat(node)
    token_only = replace(own, secret_hash="", joined=True)
    nameless = replace(own, instance=None)
    outcomes = await stores.registration.record_heartbeats([token_only, nameless])
    assert (outcomes[0].denied, outcomes[1].fenced) == (True, True)


async def test_a_localai_worker_needs_a_registration_token(stores: Stores) -> None:
    go = Machine(name="go", secret=None)
    node = await register(stores, go)
    assert (await beat(stores, go, node)).accepted
    (outcome,) = await stores.registration.record_heartbeats([replace(go.beat(node), joined=False)])
    assert outcome.denied


async def test_a_localai_worker_that_calls_from_elsewhere_is_refused_and_shown_once(stores: Stores, rig: Rig) -> None:
    go = Machine(name="go", secret=None)
    node = await register(stores, go, registered_from="2001:db8:0:1::5")
    assert (await beat(stores, go, node, source_address="2001:db8:0:1:aaaa::9")).accepted, (
        "another address of its network"
    )
    strangers = [replace(go.beat(node, source_address="10.0.0.5"), joined=False)]
    (outcome,) = await stores.registration.record_heartbeats(strangers)
    assert outcome.denied
    assert (await stores.nodes.read_one(node.id)).conflict_message is None, "whoever has no token marks nothing"
    for address in ("10.0.0.5", "10.0.0.5", "10.0.0.6"):
        assert (await beat(stores, go, node, source_address=address)).denied
    marked = await stores.nodes.read_one(node.id)
    assert "come from 10.0.0.5, but the node registered from 2001:db8:0:1::5" in (marked.conflict_message or "")
    await rig.advance(60)
    assert (await beat(stores, go, node, source_address="10.0.0.5")).denied
    again = await stores.nodes.read_one(node.id)
    assert (again.conflict_at or 0) > (marked.conflict_at or 0), "it goes on"
    assert (await actions(stores, node.id)).count("node.conflict") == 1


async def test_a_removed_node_is_unknown(stores: Stores) -> None:
    node = await join(stores, M)
    await stores.nodes.remove(node.id, actor="ann")
    assert (await beat(stores, M, node)).node is None


async def test_an_empty_batch_of_heartbeats_is_accepted(stores: Stores) -> None:
    assert await stores.registration.record_heartbeats([]) == []


async def test_a_large_batch_is_one_transaction(stores: Stores) -> None:
    machines = [Machine(name=f"w{number}", secret=f"s{number}") for number in range(40)]
    nodes = [await register(stores, machine) for machine in machines]
    beats = [machine.beat(node, available_ram=7) for machine, node in zip(machines, nodes, strict=True)]
    assert all(outcome.accepted for outcome in await stores.registration.record_heartbeats(beats + beats))
    assert {node.available_ram for node in await stores.nodes.read_all()} == {7}


FULL_DISK = Condition(kind=ConditionKind.DISK_PRESSURE, reason="its disk has 1 MiB free", remedy="Free some.")


async def test_a_condition_makes_a_node_unhealthy_until_a_heartbeat_comes_without_it(stores: Stores) -> None:
    node = await join(stores, M)
    before = len(await actions(stores, node.id))
    await stores.registration.record_heartbeats([M.beat(node, (FULL_DISK,))])
    told = await stores.nodes.read_one(node.id)
    assert told.conditions == (FULL_DISK,)
    assert (told.state, told.localai_status) == (NodeState.UNHEALTHY, NodeStatus.UNHEALTHY)
    assert told.status is NodeStatus.HEALTHY, "it is reachable: what runs there serves on"
    assert told.changed_at >= node.changed_at
    await stores.registration.record_heartbeats([M.beat(node, (replace(FULL_DISK, reason="its disk has 2 MiB free"),))])
    await stores.registration.record_heartbeats([M.beat(node)])
    assert (await stores.nodes.read_one(node.id)).conditions[0].reason == "its disk has 2 MiB free"
    await stores.registration.record_heartbeats([M.beat(node, ())])
    assert (await stores.nodes.read_one(node.id)).state is NodeState.HEALTHY
    news = (await actions(stores, node.id))[before:]
    assert news == ["node.conditions", "node.conditions"], "when it began and when it ended, not in between"


async def test_a_condition_ends_with_the_process_that_reported_it(stores: Stores) -> None:
    """The next may be of a version that tells none."""
    node = await join(stores, M)
    await stores.registration.record_heartbeats([M.beat(node, (FULL_DISK,))])
    await register(stores, M.restarted())
    assert (await stores.nodes.read_one(node.id)).conditions == ()
