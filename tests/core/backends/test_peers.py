from dataclasses import replace

from core.backends.test_drift import machine
from corral.core.backends.peers import PickedPeers, find_holders, pick_peers
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend

ECHO = ObservedBackend(name="echo", digest="d1", versions=("d1", "d0"))


def ours(name: str) -> Node:
    return machine(id=NodeId(name), name=name, http_address=f"{name}:1")


def test_holders_are_our_own_healthy_nodes_that_have_it_whole() -> None:
    good, localai, unheard = ours("good"), replace(ours("localai"), key_hash=None), ours("unheard")
    broken, away = ours("broken"), replace(ours("away"), approved=False)
    backends = {
        good.id: [ECHO],
        localai.id: [ECHO],
        away.id: [ECHO],
        broken.id: [replace(ECHO, problem="a file is missing")],
    }
    holders = find_holders([good, localai, unheard, broken, away], backends)
    assert holders == {"d1": (good,), "d0": (good,)}


def test_at_most_three_are_picked_never_the_node_itself_and_not_always_the_same() -> None:
    nodes = [ours(f"n{number}") for number in range(5)]
    picked = [pick_peers(nodes, excluding=NodeId("n0"), site="default", draw=draw).near for draw in (0.0, 0.5, 0.99)]
    assert [[node.name for node in few] for few in picked] == [
        ["n1", "n2", "n3"],
        ["n3", "n4", "n1"],
        ["n4", "n1", "n2"],
    ]
    assert pick_peers(nodes[:1], excluding=NodeId("n0"), site="default", draw=0.5) == PickedPeers((), ())


def test_nodes_of_other_sites_are_far() -> None:
    east = replace(ours("e"), worker_labels={"site": "east"})
    west = replace(ours("w"), worker_labels={"site": "east"}, operator_labels={"site": "west"})
    plain = ours("p")
    assert pick_peers([east, west, plain], excluding="x", site="west", draw=0.0) == PickedPeers((west,), (east, plain))
    assert pick_peers([east, west, plain], excluding="x", site="default", draw=0.0) == PickedPeers(
        (plain,), (east, west)
    )
