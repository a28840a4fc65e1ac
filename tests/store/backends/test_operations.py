"""What is read often of a large fleet: only what is needed, and never something outdated."""

from corral.core.backends.intents import AttemptConfirmed, AttemptRejected, RetryLimits, Verb, plan_next
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import Observation, ObservedBackend
from corral.store.backends.intents import Result
from corral.store.engine.sql import in_list
from corral.store.stores import Stores
from harness.fleet_store import admission, healthy

LIMITS = RetryLimits(attempts=3, base_s=10, cap_s=10)


def report(node: str, *backends: ObservedBackend, sequence: int = 1) -> Observation:
    return Observation(node_id=NodeId(node), instance="p", epoch=1, sequence=sequence, backends=backends, processes=())


async def test_holders_of_a_version_are_those_that_have_it_now_or_kept_it(stores: Stores) -> None:
    nodes = [await healthy(stores, name) for name in ("now", "kept", "other")]
    now = ObservedBackend(name="echo", digest="sha256:2", versions=("sha256:2", "sha256:1"))
    kept = ObservedBackend(name="echo", digest="sha256:3", versions=("sha256:3", "sha256:2"))
    other = ObservedBackend(name="echo", digest="sha256:22", versions=("sha256:22",))
    await stores.observed.record([report(node.id, one) for node, one in zip(nodes, (now, kept, other), strict=True)])
    assert await stores.observed.read_holding("sha256:2") == {nodes[0].id: [now], nodes[1].id: [kept]}
    assert await stores.observed.read_holding("sha256:9") == {}


async def test_the_mark_of_a_fleet_changes_with_nodes_reports_and_intents_only(stores: Stores) -> None:
    marks = [await stores.intents.read_mark()]
    node = await healthy(stores, "a")
    marks.append(await stores.intents.read_mark())
    await stores.observed.record([report(node.id, ObservedBackend(name="echo"))])
    marks.append(await stores.intents.read_mark())
    await stores.admission.admit(admission(Verb.INSTALL, node))
    marks.append(await stores.intents.read_mark())
    assert len(set(marks)) == 4, marks
    await stores.observed.record([report(node.id, ObservedBackend(name="echo"), sequence=2)])
    assert await stores.intents.read_mark() == marks[-1], "the same table told again is no news"


async def test_alike_results_of_many_nodes_are_written_for_each_of_them(stores: Stores) -> None:
    """Written with one statement: none too many, none too few."""
    nodes = [await healthy(stores, f"n{number}") for number in range(7)]
    admitted = await stores.admission.admit(admission(Verb.INSTALL, *nodes))
    beside = await stores.admission.admit(admission(Verb.INSTALL, *nodes[:2], backend="beside"))
    claims = [
        one for one in await stores.intents.claim("fe", lease_s=15, limit=20) if one.intent.operation_id == admitted.id
    ]
    good, bad = AttemptConfirmed("sha256:seen"), AttemptRejected("no room")
    results = [
        Result(one.intent, plan_next(one.intent, bad if one.node_name == "n3" else good, draw=1.0, limits=LIMITS))
        for one in claims
    ]
    assert await stores.intents.record(results) == {one.intent.id for one in claims}
    shown = (await stores.operations.read_one(admitted.id)).nodes
    told = {node.node_name: (node.status.value, node.error, node.attempts) for node in shown}
    assert told == {f"n{number}": ("success", "", 0) for number in range(7)} | {"n3": ("error", "no room", 1)}
    assert {node.digest for node in shown if node.status.value == "success"} == {"sha256:seen"}
    others = (await stores.operations.read_one(beside.id)).nodes
    assert {node.status.value for node in others} == {"downloading"}


async def test_intents_of_a_removed_node_are_found_and_ended(stores: Stores) -> None:
    node = await healthy(stores, "a")
    admitted = await stores.admission.admit(admission(Verb.INSTALL, node))
    assert await stores.intents.finish_idle() == []
    await stores.nodes.remove(node.id, actor="test")
    await stores.intents.finish_idle()
    assert (await stores.operations.read_one(admitted.id)).finished_at is not None


def test_a_list_of_ids_has_few_lengths_and_no_id_too_many() -> None:
    assert in_list([]) == []
    assert in_list(["b"]) == ["b"]
    assert in_list(["c", "a", "b", "a"]) == ["a", "b", "c", "c"]
    for count in (5, 100, 8192, 8193, 20_000):
        ids = {f"{number:05d}" for number in range(count)}
        padded = in_list(ids)
        assert set(padded) == ids
        assert len(padded) < 32_766, "more than a statement takes"
        assert count > 8192 or len(padded).bit_count() == 1


async def test_an_install_that_a_load_needed_joins_the_history_once(stores: Stores) -> None:
    node = await healthy(stores, "a")
    for _ in range(2):
        await stores.operations.note_install(
            "o",
            backend="echo",
            node_id=node.id,
            node_name="a",
            variant="cpu-echo",
            digest="sha256:1",
            cause="load of m",
        )
    [noted] = await stores.operations.read_history()
    assert (noted.verb, noted.backend, noted.cause, noted.state) == (Verb.INSTALL, "echo", "load of m", "completed")
    assert [(one.node_name, one.status) for one in (await stores.operations.read_one("o")).nodes] == [("a", "success")]
