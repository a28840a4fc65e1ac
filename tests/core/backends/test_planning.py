"""Who is asked to do what."""

from dataclasses import replace
from typing import Any

import pytest

from core.backends.test_drift import BUILD, DELETED, DONE, HAS_NEW, HAS_OLD, NEW, OLD, machine, policy, state
from corral.core.backends.build import BuildRef
from corral.core.backends.intents import BackendSpec, IntentState, Verb
from corral.core.backends.operations import NewIntent
from corral.core.backends.planning import (
    NodeBackends,
    as_known,
    complete_digest,
    find_holds,
    pick_upgrades,
    plan_deletes,
    plan_held,
    plan_rollbacks,
    skip_frozen_nodes,
    skip_rolled_back,
)
from corral.core.backends.policies import OnDrift, policy_for
from corral.core.backends.upgrades import find_upgrades
from corral.core.errors import InvalidInput, NotFound
from corral.core.nodes.node import Node, NodeId, NodeType
from corral.core.nodes.observed import ObservedBackend
from corral.core.nodes.targets import Target, find_node, pick_nodes


def named(name: str, **fields: Any) -> Node:
    return machine(id=NodeId(f"id-{name}"), name=name, **fields)


FAST = named("fast", worker_labels={"tier": "fast"})
SLOW = named("slow", worker_labels={"tier": "slow"})
PENDING = named("pending", approved=False)
AGENT = named("agent", node_type=NodeType.AGENT)
ALL = [FAST, SLOW, PENDING, AGENT]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(Target(), ["fast", "slow"], id="every-approved-machine-that-runs-backends"),
        pytest.param(Target(selector={"tier": "fast"}), ["fast"], id="those-a-selector-fits"),
        pytest.param(Target(selector={"tier": "none"}), [], id="a-selector-that-fits-none-is-no-error"),
        pytest.param(Target(nodes=("id-slow", "fast", "fast")), ["slow", "fast"], id="named-by-id-or-name-once-each"),
    ],
)
def test_pick_nodes(target: Target, expected: list[str]) -> None:
    assert [node.name for node in pick_nodes(ALL, target)] == expected


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("nobody", NotFound, "there is no node"),
        ("agent", InvalidInput, "runs no backends"),
        ("pending", InvalidInput, "is waiting for approval"),
    ],
)
def test_a_named_node_that_cannot_be_asked_is_an_error(name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        pick_nodes(ALL, Target(nodes=(name,)))


FAMILY = ObservedBackend(name="echo", is_meta=True, concrete="cpu-echo")


def test_an_upgrade_is_for_nodes_that_have_it_under_any_of_its_names() -> None:
    has, has_not = state(HAS_OLD, FAMILY, spec=DONE), state()
    for name in ("echo", "cpu-echo"):
        assert pick_upgrades([has, has_not], name) == [has]
        assert has.key_of(name) == "echo", "one backend has one row of intents"


@pytest.mark.parametrize(
    ("node", "only_if_desired"),
    [
        pytest.param(state(HAS_NEW, FAMILY, spec=DONE), False, id="it-has-it"),
        pytest.param(state(spec=DONE), False, id="it-was-told-to-have-it"),
        pytest.param(NodeBackends(node=machine(), backends=None, newest={}), False, id="nobody-knows"),
        pytest.param(state(spec=DELETED), True, id="deleted-before"),
        pytest.param(state(), True, id="never-had-it"),
        pytest.param(
            NodeBackends(node=machine(), backends=[], newest={"cpu-echo": BUILD}),
            False,
            id="told-to-have-a-build-of-it",
        ),
    ],
)
def test_plan_deletes(node: NodeBackends, only_if_desired: bool) -> None:
    (intent,) = plan_deletes([node], "echo")
    assert intent.only_if_desired == only_if_desired


BROKEN = "sha256:broken"


@pytest.mark.parametrize(
    ("versions", "current", "to", "expected"),
    [
        pytest.param((NEW, OLD), NEW, None, OLD, id="the-one-before"),
        pytest.param((NEW, BROKEN, OLD), NEW, None, OLD, id="one-that-never-worked-is-passed-over"),
        pytest.param((NEW, BROKEN), NEW, None, BROKEN, id="unless-there-is-no-other"),
        pytest.param((NEW, OLD), OLD, None, None, id="nothing-is-earlier-than-the-first"),
        pytest.param((NEW, BROKEN, OLD), OLD, NEW, NEW, id="one-asked-for-by-digest"),
        pytest.param((NEW,), NEW, OLD, None, id="one-that-is-not-there"),
    ],
)
def test_plan_rollbacks(versions: tuple[str, ...], current: str, to: str | None, expected: str | None) -> None:
    found = ObservedBackend(name="cpu-echo", digest=current, versions=versions)
    before = BackendSpec(reference="echo", build=BuildRef(uris=("oci://r/e@old",)))
    good = {OLD: before, NEW: BackendSpec(reference="echo")}
    intents, skipped = plan_rollbacks([state(found, FAMILY, spec=DONE)], "echo", to=to, specs=good)
    assert [intent.spec.build.digest for intent in intents] == ([expected] if expected else [])
    assert len(skipped) == (0 if expected else 1)
    if expected == OLD:
        assert intents[0].spec.build.uris == ("oci://r/e@old",), "so that it can be installed again"


def test_a_second_rollback_avoids_two_versions() -> None:
    found = ObservedBackend(name="cpu-echo", digest=BROKEN, versions=(NEW, BROKEN, OLD))
    before = replace(DONE, spec=replace(DONE.spec, rolled_back_from=(NEW, OLD)))
    ((intent,), _) = plan_rollbacks([state(found, FAMILY, spec=before)], "echo", to=None, specs={OLD: DONE.spec})
    assert (intent.spec.build.digest, set(intent.spec.rolled_back_from)) == (OLD, {NEW, BROKEN})


def test_a_rollback_during_an_upgrade_keeps_the_installed_version() -> None:
    found = ObservedBackend(name="cpu-echo", digest=OLD, versions=(NEW, OLD, BROKEN))
    tried = replace(DONE, verb=Verb.UPGRADE, state=IntentState.PENDING)
    ((intent,), _) = plan_rollbacks([state(found, FAMILY, spec=tried)], "echo", to=None, specs={})
    assert (intent.spec.build.digest, intent.spec.rolled_back_from) == (OLD, (NEW,))


def upgrade_of(node: Node) -> NewIntent:
    return NewIntent(node_id=node.id, node_name=node.name, backend="echo", spec=DONE.spec)


@pytest.mark.parametrize(
    ("spec", "skipped_there"),
    [
        pytest.param(replace(DONE.spec, rolled_back_from=(NEW,)), True, id="from-this-version"),
        pytest.param(replace(DONE.spec, rolled_back_from=(BROKEN,)), False, id="from-another"),
        pytest.param(DONE.spec, False, id="never"),
    ],
)
def test_rolled_back_nodes_are_skipped(spec: BackendSpec, skipped_there: bool) -> None:
    held = NodeBackends(node=FAST, backends=[HAS_OLD], newest={"echo": replace(DONE, spec=spec)})
    other = NodeBackends(node=SLOW, backends=[HAS_OLD], newest={"echo": DONE})
    intents, skipped = skip_rolled_back([upgrade_of(FAST), upgrade_of(SLOW)], [held, other])
    assert [intent.node_name for intent in intents] == (["slow"] if skipped_there else ["fast", "slow"])
    reason = "the node was rolled back from this version; `corral backends upgrade echo --node fast` upgrades it anyway"
    assert [skip.reason for skip in skipped] == ([reason] if skipped_there else [])
    offers = {("echo", held.node.id): BuildRef(name="cpu-echo", digest=NEW, version="")}
    (outdated,) = find_upgrades([held], offers)["echo"].nodes
    assert outdated.rolled_back is skipped_there


def test_frozen_nodes_are_skipped() -> None:
    states = [NodeBackends(node=node, backends=[HAS_OLD], newest={"echo": DONE}) for node in (FAST, SLOW)]
    frozen_there = policy(on_drift=OnDrift.FREEZE, selector={"tier": "fast"}, generation=10)
    free, (frozen,) = skip_frozen_nodes(states, "echo", [policy(), frozen_there])
    assert [state.node.name for state in free] == ["slow"]
    assert (frozen.node_name, "--drift p correct" in frozen.reason) == ("fast", True)


def test_a_localai_worker_has_no_earlier_version() -> None:
    found = ObservedBackend(name="cpu-echo", digest=NEW, versions=(NEW, OLD))
    node = state(found, FAMILY, spec=DONE, key_hash=None)
    intents, (skip,) = plan_rollbacks([node], "echo", to=None, specs={})
    assert not intents
    assert "LocalAI" in skip.reason


PLAIN = ObservedBackend(name="cpu-echo", digest=OLD, uri="https://files.test/echo.tar.gz")
V2 = BuildRef(name="cpu-echo", digest="", version="2.0", uris=("https://files.test/echo-2.tar.gz",))
SAME_PLACE = BuildRef(name="cpu-echo", digest="", version="", uris=(PLAIN.uri,))


def test_a_version_without_a_digest_that_was_rolled_back_is_skipped() -> None:
    """An archive at an address of its own: what it contains is only known when it has arrived."""
    second = BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", version="2.0", uris=V2.uris))
    found = ObservedBackend(name="cpu-echo", digest=NEW, version="2.0", uri=V2.uris[0], versions=(NEW, OLD))
    running = state(found, FAMILY, spec=replace(DONE, verb=Verb.UPGRADE, spec=second))
    ((intent,), _) = plan_rollbacks([running], "echo", to=None, specs={})
    held = state(PLAIN, FAMILY, spec=replace(DONE, verb=Verb.ROLLBACK, spec=intent.spec))
    again = NewIntent(node_id=held.node.id, node_name="n", backend="echo", spec=second)
    assert skip_rolled_back([again], [held])[0] == []
    (outdated,) = find_upgrades([held], {("echo", held.node.id): V2})["echo"].nodes
    assert outdated.rolled_back
    cancelled = replace(DONE, verb=Verb.UPGRADE, state=IntentState.CANCELLED, spec=second, generation=20)
    after = replace(state(PLAIN, spec=cancelled), restored={"echo": held.newest["echo"]})
    assert skip_rolled_back([again], [after])[0] == [], "an upgrade that was cancelled changes nothing"


def test_an_unfinished_first_install_gets_the_new_version_and_after_a_rollback_the_old_one() -> None:
    waiting = NodeBackends(node=SLOW, backends=[], newest={"echo": replace(DONE, state=IntentState.PENDING)})
    has = NodeBackends(node=FAST, backends=[replace(HAS_NEW, versions=(NEW, OLD)), FAMILY], newest={"echo": DONE})
    assert pick_upgrades([waiting, has], "echo") == [waiting, has]
    intents, _ = plan_rollbacks(
        [has], "echo", to=None, specs={OLD: BackendSpec(reference="echo", build=BuildRef(uris=("oci://r/e@old",)))}
    )
    (hold,) = find_holds(intents)
    assert (hold.build.name, hold.build.digest, hold.rolled_back_from) == ("cpu-echo", OLD, (NEW,))
    (intent,) = plan_held([waiting, has], "echo", [hold])
    assert (intent.node_name, intent.verb, intent.spec.build.digest) == ("slow", Verb.INSTALL, OLD)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("sha256:abc123", "sha256:abc123ff"),
        ("ABC123", "sha256:abc123ff"),
        ("sha256:abc123ff", "sha256:abc123ff"),
        ("dead", "dead"),
    ],
)
def test_the_beginning_of_a_digest_will_do(wanted: str, expected: str) -> None:
    found = ObservedBackend(name="echo", digest=NEW, versions=("sha256:abc123ff", "sha256:abc9"))
    assert complete_digest(wanted, [state(found)], "echo") == expected
    with pytest.raises(InvalidInput, match="several versions"):
        complete_digest("abc", [state(found)], "echo")


def test_names_are_found_in_any_case() -> None:
    node = state(FAMILY, replace(HAS_NEW, alias="Speech"))
    assert [as_known(name, [node]) for name in ("ECHO", "ours@Cpu-Echo", "speech", "Other")] == [
        "echo", "ours@cpu-echo", "Speech", "Other",
    ]  # fmt: skip
    assert as_known("LLAMA", [], [policy(backend="llama")]) == "llama"
    assert find_node(ALL, "FAST") is FAST
    assert find_node([*ALL, named("Fast")], "fast") is FAST, "the very name goes before"


def test_no_policy_applies_to_a_node_that_may_not_work() -> None:
    assert policy_for(PENDING, "echo", []) is None
