"""What the health pass writes, and above all what it does not."""

import pytest

from corral.core.errors import Fenced
from corral.core.nodes.node import Node, NodeStatus, NodeType
from corral.core.nodes.presence import Presence
from corral.store.stores import Stores
from harness.databases import Rig
from harness.machines import Machine, actions, beat, hold, join, judge, register

M = Machine()


async def status(stores: Stores, node: Node) -> NodeStatus:
    return (await stores.nodes.read_one(node.id)).status


async def test_a_heartbeat_and_an_answer_make_a_node_healthy_and_the_log_shows_it(stores: Stores) -> None:
    node = await register(stores, M, auto_approve=True)
    await beat(stores, M, node)
    assert await judge(stores, node.id) == [("unhealthy", "healthy")]
    assert (await actions(stores, node.id))[-1] == "node.healthy"


async def test_unchanged_health_is_not_written(stores: Stores, rig: Rig) -> None:
    nodes = [await join(stores, Machine(name=f"w{n}", secret=f"s{n}")) for n in range(3)]
    before = [await stores.nodes.read_one(node.id) for node in nodes]
    events = await stores.events.read_latest(limit=1000)
    await rig.advance(5)
    for _ in range(3):
        assert await judge(stores, *(node.id for node in nodes)) == []
    assert [await stores.nodes.read_one(node.id) for node in nodes] == before
    assert await stores.events.read_latest(limit=1000) == events


async def test_one_lost_answer_is_noise_two_are_a_sign(stores: Stores) -> None:
    node = await join(stores, M)
    assert await judge(stores, silent=(node.id,)) == []
    assert await judge(stores, node.id) == []
    assert await judge(stores, silent=(node.id,)) == []
    assert await judge(stores, silent=(node.id,)) == [("healthy", "unhealthy")]
    assert await judge(stores, node.id) == [("unhealthy", "healthy")]


async def test_heartbeats_alone_do_not_make_a_node_healthy_that_is_cut_from_the_bus(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    seen = []
    for _ in range(12):
        await rig.advance(10)
        await beat(stores, M, node)
        seen += await judge(stores, silent=(node.id,))
    assert seen == [("healthy", "unhealthy")]


async def test_bus_answers_alone_do_not_make_a_node_healthy_whose_heartbeats_stopped(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    seen = []
    for _ in range(12):
        await rig.advance(10)
        seen += await judge(stores, node.id)
    assert seen == [("healthy", "unhealthy")]


async def test_a_silent_node_becomes_offline_once_and_is_then_left_alone(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    seen = []
    for _ in range(8):
        await rig.advance(10)
        seen += await judge(stores, silent=(node.id,))
    assert [was_is[1] for was_is in seen] == ["unhealthy", "offline"]
    settled = await stores.nodes.read_one(node.id)
    for _ in range(5):
        await rig.advance(10)
        assert await judge(stores, silent=(node.id,)) == []
    assert await stores.nodes.read_one(node.id) == settled
    await beat(stores, M, node)
    assert await judge(stores, node.id) == [("offline", "healthy")]


async def test_the_word_of_the_bus_that_nobody_listens_shortens_the_wait(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    await rig.advance(30)
    await judge(stores, nobody=(node.id,))
    await judge(stores, nobody=(node.id,))
    assert await status(stores, node) is NodeStatus.OFFLINE


async def test_a_pass_without_probes_declares_no_one_dead_on_the_bus_alone(stores: Stores, rig: Rig) -> None:
    """Our own link to the bus is gone: there are no probes, and that is no one's fault."""
    node = await join(stores, M)
    for _ in range(20):
        await rig.advance(10)
        await beat(stores, M, node)
        assert await judge(stores) == []


async def test_a_store_that_was_unavailable_declares_no_one_offline(stores: Stores, rig: Rig) -> None:
    nodes = [await join(stores, Machine(name=f"w{n}", secret=f"s{n}")) for n in range(3)]
    await rig.advance(600)  # ten minutes in which no beat could be written
    for listened_s in (0.0, 5.0, 29.0):
        assert await judge(stores, *(node.id for node in nodes), listened_s=listened_s) == []
        assert await judge(stores, silent=tuple(node.id for node in nodes[:1]), listened_s=0.0) == []
        assert await judge(stores, *(node.id for node in nodes), listened_s=listened_s) == []


async def test_a_frontend_that_has_just_started_raises_no_one_from_the_dead(stores: Stores, rig: Rig) -> None:
    gone = await join(stores, M)
    agent_machine = Machine(name="agent", secret="agent")
    agent = await register(stores, agent_machine, auto_approve=True, node_type=NodeType.AGENT)
    await beat(stores, agent_machine, agent)
    await judge(stores, gone.id)
    assert await status(stores, agent) is NodeStatus.HEALTHY
    await rig.advance(3600)
    await judge(stores, silent=(gone.id,))
    await judge(stores, silent=(gone.id,))
    assert [await status(stores, node) for node in (gone, agent)] == [NodeStatus.OFFLINE, NodeStatus.OFFLINE]
    for listened_s in (0.0, 5.0, 40.0):
        assert await judge(stores, silent=(gone.id,), listened_s=listened_s) == []
    assert [await status(stores, node) for node in (gone, agent)] == [NodeStatus.OFFLINE, NodeStatus.OFFLINE]


async def test_a_frontend_that_has_just_started_does_not_mark_a_node_healthy_whose_heartbeats_stopped(
    stores: Stores, rig: Rig
) -> None:
    node = await join(stores, M)
    await rig.advance(45)
    assert await judge(stores, node.id) == [("healthy", "unhealthy")]
    for listened_s in (0.0, 5.0, 40.0):
        assert await judge(stores, node.id, listened_s=listened_s) == []


async def test_a_holder_that_lost_its_lease_writes_nothing(stores: Stores, rig: Rig) -> None:
    node = await register(stores, M, auto_approve=True)
    late = await hold(stores, ttl_s=15)
    await rig.advance(15)
    await hold(stores, "frontend-2")
    await beat(stores, M, node)
    with pytest.raises(Fenced):
        await judge(stores, node.id, lease=late)
    assert (await stores.nodes.read_one(node.id)).presence is Presence.JOINING
    assert "node.healthy" not in await actions(stores, node.id)


async def test_a_pending_node_stays_pending_whatever_is_observed(stores: Stores, rig: Rig) -> None:
    node = await register(stores, M)
    await beat(stores, M, node)
    assert await judge(stores, node.id) == []
    await rig.advance(120)
    assert await judge(stores, nobody=(node.id,)) == []
    assert await status(stores, node) is NodeStatus.PENDING


async def test_drain_shows_on_a_live_node_and_absence_goes_before_it(stores: Stores, rig: Rig) -> None:
    node = await join(stores, M)
    await stores.nodes.set_drain(node.id, True, actor="ann")
    assert await status(stores, node) is NodeStatus.DRAINING
    await rig.advance(120)
    await judge(stores, nobody=(node.id,))
    await judge(stores, nobody=(node.id,))
    assert await status(stores, node) is NodeStatus.OFFLINE
    await beat(stores, M, node)
    assert await judge(stores, node.id) == [("offline", "draining")]


async def test_a_removed_node_is_not_judged(stores: Stores) -> None:
    node = await join(stores, M)
    await stores.nodes.remove(node.id, actor="ann")
    assert await judge(stores, silent=(node.id,)) == []
    assert await judge(stores, silent=(node.id,)) == []


async def test_an_answer_of_an_earlier_process_does_not_prove_its_successor(stores: Stores) -> None:
    node = await join(stores, M)
    successor = M.restarted()
    await register(stores, successor)
    await beat(stores, successor, node)
    for _ in range(2):
        await judge(stores, node.id, as_epoch={node.id: node.epoch})
    assert await status(stores, node) is NodeStatus.UNHEALTHY
    await judge(stores, node.id)
    assert await status(stores, node) is NodeStatus.HEALTHY


async def test_a_localai_workers_answer_needs_no_epoch(stores: Stores) -> None:
    other = Machine(name="go", secret=None)
    node = await register(stores, other, auto_approve=True)
    await beat(stores, other, node)
    assert await judge(stores, node.id, as_epoch={node.id: None}) == [("unhealthy", "healthy")]


async def test_a_node_silent_on_one_path_for_the_offline_limit_is_offline_while_others_are_live(
    stores: Stores, rig: Rig
) -> None:
    """Its replicas are replaced elsewhere; the path that still works does not bring it back."""
    other = Machine(name="other", secret="other")
    live, cut = await join(stores, other), await join(stores, M)
    for path in ("bus", "heartbeats"):
        seen = []
        reasons = set()
        for _ in range(18):
            await rig.advance(10)
            await beat(stores, other, live)
            if path == "bus":
                await register(stores, M)  # a worker that the bus does not take asks for a new credential all the time
                await beat(stores, M, cut)
                seen += await judge(stores, live.id, silent=(cut.id,))
            else:
                seen += await judge(stores, live.id, cut.id)
            now = await stores.nodes.read_one(cut.id)
            if now.status is NodeStatus.OFFLINE:
                reasons.add(now.presence_reason)
        assert [was_is[1] for was_is in seen] == ["unhealthy", "offline"], path
        [reason] = reasons
        assert "its replicas are replaced on other nodes" in reason
        assert ("does not answer on the message bus" if path == "bus" else "no heartbeats received, but") in reason
        await beat(stores, M, cut)
        assert await judge(stores, live.id, cut.id) == [("offline", "healthy")]


async def test_when_nobody_answers_on_the_bus_nobody_is_offline_for_it(stores: Stores, rig: Rig) -> None:
    """The fault is more likely on our side, and there is no other node to move replicas to."""
    machines = [Machine(name=f"w{n}", secret=f"s{n}") for n in range(3)]
    nodes = [await join(stores, machine) for machine in machines]
    for _ in range(12):
        await rig.advance(10)
        for machine, node in zip(machines, nodes, strict=True):
            await beat(stores, machine, node)
        await judge(stores, silent=tuple(node.id for node in nodes))
    assert [await status(stores, node) for node in nodes] == [NodeStatus.UNHEALTHY] * 3


async def test_a_worker_that_was_restarted_and_never_reaches_the_bus_is_offline_too(stores: Stores, rig: Rig) -> None:
    other = Machine(name="other", secret="other")
    live, cut = await join(stores, other), await join(stores, M)
    seen = []
    for restart in range(7):
        again = M.restarted(f"process-{2 + restart // 3}")
        if restart % 3 == 0:
            await register(stores, again, auto_approve=True)
        for _ in range(2):
            await beat(stores, again, cut)
            await beat(stores, other, live)
            seen += await judge(stores, live.id, silent=(cut.id,))
        await rig.advance(10)
    assert seen == [("unhealthy", "offline")], "after a minute, however often it was restarted meanwhile"


async def test_a_node_is_offline_only_when_the_bus_was_silent_for_the_whole_offline_limit(
    stores: Stores, rig: Rig
) -> None:
    """Two lost round trips, or one command that nobody received, make it suspect within a moment."""
    other = Machine(name="other", secret="other")
    live, cut = await join(stores, other), await join(stores, M)
    await stores.health.suspect(cut.id, reason="nobody took its order")
    seen = []
    for _ in range(6):
        seen += await judge(stores, live.id, silent=(cut.id,))
        await rig.advance(10)
        await beat(stores, other, live)
        await beat(stores, M, cut)
        assert seen == []
    assert await judge(stores, live.id, silent=(cut.id,)) == [("unhealthy", "offline")]


async def test_a_node_that_waited_long_for_its_approval_has_the_time_of_a_new_one_to_reach_the_bus(
    stores: Stores, rig: Rig
) -> None:
    other = Machine(name="other", secret="other")
    live, late = await join(stores, other), await register(stores, M)
    await rig.advance(3600)
    await stores.nodes.approve(late.id, actor="ann")
    for _ in range(6):
        await beat(stores, other, live)
        await beat(stores, M, late)
        for _ in range(2):
            assert await judge(stores, live.id, nobody=(late.id,)) == []
        await rig.advance(10)
    await beat(stores, other, live)
    await beat(stores, M, late)
    assert await judge(stores, live.id, nobody=(late.id,)) == [("unhealthy", "offline")]
