"""Who is asked to do what."""

from dataclasses import replace
from typing import Any

import pytest

from core.backends.test_drift import BUILD, DELETED, DONE, HAS_NEW, HAS_OLD, NEW, OLD, machine, policy, state
from core.backends.test_version_pins import pin, pinned_spec
from corral.core.backends.build import BuildRef
from corral.core.backends.intents import BackendSpec, IntentState, Verb
from corral.core.backends.operations import NewIntent
from corral.core.backends.planning import (
    NodeBackends,
    as_known,
    complete_digest,
    describe_rolled_back,
    find_common_specs,
    pick_changing,
    pick_upgrades,
    plan_deletes,
    plan_installs,
    plan_pinned,
    plan_rollbacks,
    skip_frozen_nodes,
    skip_pinned,
)
from corral.core.backends.policies import OnDrift, policy_for
from corral.core.backends.upgrades import describe_pinned, find_upgrades
from corral.core.backends.version_pins import VersionPin
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
    intents, skipped = plan_rollbacks([state(found, FAMILY, spec=DONE)], "echo", to={to} if to else None, specs=good)
    assert [intent.spec.build.digest for intent in intents] == ([expected] if expected else [])
    assert len(skipped) == (0 if expected else 1)
    if expected == OLD:
        assert intents[0].spec.build.uris == ("oci://r/e@old",), "so that it can be installed again"


def test_a_rollback_during_an_upgrade_keeps_the_installed_version() -> None:
    found = ObservedBackend(name="cpu-echo", digest=OLD, versions=(NEW, OLD, BROKEN))
    tried = replace(DONE, verb=Verb.UPGRADE, state=IntentState.PENDING)
    ((intent,), _) = plan_rollbacks([state(found, FAMILY, spec=tried)], "echo", to=None, specs={})
    assert (intent.spec.build.digest, intent.spec.pinned) == (OLD, True)
    assert describe_rolled_back([state(found, FAMILY, spec=tried)], "echo", [intent]) == "rolled back from sha256:new"


@pytest.mark.parametrize(
    ("pins", "skipped_there"),
    [
        pytest.param([pin(OLD, 1, tier="fast")], True, id="pinned"),
        pytest.param([pin(OLD, 1, tier="none")], False, id="pinned-elsewhere"),
        pytest.param([pin(OLD, 1), pin("", 2, follows=True)], False, id="it-follows-again"),
        pytest.param([], False, id="never"),
    ],
)
def test_pinned_nodes_are_skipped_and_the_list_says_so(pins: list[VersionPin], skipped_there: bool) -> None:
    held = NodeBackends(node=FAST, backends=[HAS_OLD], newest={"echo": DONE}, pins=pins)
    other = NodeBackends(node=SLOW, backends=[HAS_OLD], newest={"echo": DONE})
    free, skipped = skip_pinned([held, other], "echo")
    assert [state.node.name for state in free] == (["slow"] if skipped_there else ["fast", "slow"])
    (outdated,) = find_upgrades([held], {("echo", held.node.id): BuildRef(name="cpu-echo", version="1.3")})[
        "echo"
    ].nodes
    if not skipped_there:
        assert (skipped, outdated.pinned) == ([], "")
        return
    since = "pinned to sha256:old since 1970-01-01 00:00 UTC by me (it crashed)"
    assert skipped[0].reason == f"{since}; `corral backends follow echo` lets it follow the galleries again"
    assert describe_pinned([outdated]) == f"{since}; 1.3 available"


@pytest.mark.parametrize(
    ("build", "changes"),
    [
        pytest.param(BuildRef(name="echo", digest=NEW), True, id="another-digest"),
        pytest.param(BuildRef(name="echo", digest=OLD), False, id="the-digest-that-is-installed"),
        pytest.param(BuildRef(name="cuda-echo", digest=OLD), True, id="another-build"),
        pytest.param(BuildRef(name="echo", version="1.0"), False, id="the-version-that-is-installed"),
        pytest.param(BuildRef(name="echo"), True, id="a-source-that-does-not-tell-its-version"),
    ],
)
def test_what_an_upgrade_may_change(build: BuildRef, changes: bool) -> None:
    has = NodeBackends(node=FAST, backends=[ObservedBackend(name="echo", digest=OLD, version="1.0")], newest={})
    intent = NewIntent(
        node_id=FAST.id, node_name="fast", backend="echo", spec=BackendSpec(reference="echo", build=build)
    )
    assert bool(pick_changing([intent], [has], "echo", Verb.UPGRADE)) is changes
    assert pick_changing([intent], [replace(has, backends=[])], "echo", Verb.UPGRADE) == [], "the first install"


@pytest.mark.parametrize(
    ("found", "spec", "forced", "changes"),
    [
        pytest.param({}, {"digest": NEW}, False, True, id="another-digest"),
        pytest.param({}, {"digest": NEW}, True, True, id="another-digest-by-force"),
        pytest.param({}, {"digest": OLD}, True, False, id="a-repair"),
        pytest.param({}, {}, True, False, id="a-repair-from-a-source-that-does-not-tell-its-version"),
        pytest.param({"digest": ""}, {"digest": NEW}, True, False, id="a-repair-of-a-broken-version"),
        pytest.param({"is_system": True}, {"digest": NEW}, False, False, id="beside-a-preinstalled-backend"),
    ],
)
@pytest.mark.parametrize("node", [FAST, replace(FAST, key_hash=None)], ids=["corral", "localai"])
def test_what_an_install_changes(
    node: Node, found: dict[str, Any], spec: dict[str, Any], forced: bool, changes: bool
) -> None:
    has = NodeBackends(
        node=node, backends=[replace(ObservedBackend(name="echo", digest=OLD, version="1.0"), **found)], newest={}
    )
    wanted = BackendSpec(reference="echo", build=BuildRef(name="echo", **spec), force=forced)
    planned = plan_installs([NewIntent(node_id=node.id, node_name="fast", backend="echo", spec=wanted)], [has])
    changing = pick_changing(planned, [has], "echo", Verb.INSTALL)
    keeps = not node.speaks_corral and not forced
    assert [one.verb for one in changing] == ([Verb.UPGRADE] if changes and not keeps else [])


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


def test_an_unfinished_first_install_gets_the_new_version_and_after_a_rollback_the_old_one() -> None:
    waiting = NodeBackends(node=SLOW, backends=[], newest={"echo": replace(DONE, state=IntentState.PENDING)})
    has = NodeBackends(node=FAST, backends=[replace(HAS_NEW, versions=(NEW, OLD)), FAMILY], newest={"echo": DONE})
    assert pick_upgrades([waiting, has], "echo") == [waiting, has]
    intents, _ = plan_rollbacks(
        [has], "echo", to=None, specs={OLD: BackendSpec(reference="echo", build=BuildRef(uris=("oci://r/e@old",)))}
    )
    (common,) = find_common_specs(intents)
    assert (common.build.name, common.build.digest, common.pinned) == ("cpu-echo", OLD, True)
    assert describe_rolled_back([has], "echo", intents) == "rolled back from sha256:new"
    ((intent,), skipped) = plan_pinned([waiting], "echo", [common])
    assert (intent.node_name, intent.verb, intent.spec.build.digest) == ("slow", Verb.INSTALL, OLD)
    assert not skipped


V1 = BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", version="1.0"))


@pytest.mark.parametrize(
    ("node", "spec", "verbs"),
    [
        pytest.param(state(HAS_NEW, FAMILY, spec=DONE), pinned_spec(OLD), [Verb.UPGRADE], id="another-version"),
        pytest.param(state(HAS_OLD, FAMILY, spec=DONE), pinned_spec(OLD), [], id="it-has-it"),
        pytest.param(
            state(HAS_OLD, FAMILY, spec=replace(DONE, verb=Verb.UPGRADE, state=IntentState.RUNNING)),
            pinned_spec(OLD),
            [Verb.UPGRADE],
            id="it-has-it-and-is-being-upgraded",
        ),
        pytest.param(state(HAS_OLD, FAMILY, spec=DONE), pinned_spec(OLD, "cuda-echo"), [], id="of-another-build"),
        pytest.param(state(), pinned_spec(OLD), [], id="nobody-wants-it-there"),
        pytest.param(
            state(spec=replace(DONE, state=IntentState.PENDING)), pinned_spec(OLD), [Verb.INSTALL], id="not-there-yet"
        ),
        pytest.param(state(replace(HAS_NEW, version="v1.0"), FAMILY, spec=DONE), V1, [], id="the-same-number"),
        pytest.param(state(replace(HAS_NEW, version="2"), FAMILY, spec=DONE), V1, [Verb.UPGRADE], id="another-number"),
    ],
)
def test_plan_pinned(node: NodeBackends, spec: BackendSpec, verbs: list[Verb]) -> None:
    intents, skipped = plan_pinned([node], "echo", [spec])
    assert ([intent.verb for intent in intents], skipped) == (verbs, [])
    assert all(intent.spec == spec and intent.backend == "echo" for intent in intents)


def test_a_localai_worker_cannot_be_pinned() -> None:
    intents, (skip,) = plan_pinned([state(HAS_NEW, FAMILY, spec=DONE, key_hash=None)], "echo", [pinned_spec(OLD)])
    assert (intents, "LocalAI" in skip.reason) == ([], True)


def test_a_rollback_to_a_version_takes_the_digest_that_is_on_the_disk() -> None:
    found = ObservedBackend(name="cpu-echo", digest=NEW, versions=(NEW, BROKEN, OLD))
    ((intent,), _) = plan_rollbacks([state(found, FAMILY, spec=DONE)], "echo", to={OLD, "sha256:else"}, specs={})
    assert (intent.spec.build.digest, intent.spec.pinned) == (OLD, True)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("sha256:abc123", "sha256:abc123ff"),
        ("ABC123", "sha256:abc123ff"),
        ("sha256:abc123ff", "sha256:abc123ff"),
        ("dead", "dead"),
        ("abc12", "abc12"),
        ("9", "9"),
        ("sha256:9", "sha256:9eb4185d"),
    ],
)
def test_the_beginning_of_a_digest_will_do(wanted: str, expected: str) -> None:
    found = ObservedBackend(name="echo", digest=NEW, versions=("sha256:abc123ff", "sha256:abc9", "sha256:9eb4185d"))
    assert complete_digest(wanted, [state(found)], "echo") == expected
    with pytest.raises(InvalidInput, match="several versions"):
        complete_digest("sha256:abc", [state(found)], "echo")


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


@pytest.mark.parametrize(
    ("good", "to", "expected"),
    [
        pytest.param({"sha256:cpu"}, None, ("cpu-echo", "sha256:cpu"), id="not-to-one-that-is-only-on-the-disk"),
        pytest.param({"sha256:cpu", "sha256:c1"}, None, ("cuda-echo", "sha256:c1"), id="its-own-earlier-version-first"),
        pytest.param({"sha256:cpu"}, {"sha256:c1"}, ("cuda-echo", "sha256:c1"), id="the-one-that-was-named"),
        pytest.param({"sha256:cpu"}, {"sha256:cpu"}, ("cpu-echo", "sha256:cpu"), id="the-build-that-was-named"),
        pytest.param(set(), None, ("cuda-echo", "sha256:c1"), id="nothing-else-is-known"),
    ],
)
def test_a_rollback_returns_to_the_former_build_of_a_family(
    good: set[str], to: set[str] | None, expected: tuple[str, str]
) -> None:
    backends = [
        ObservedBackend(name="cuda-echo", digest="sha256:c2", versions=("sha256:c2", "sha256:c1")),
        ObservedBackend(name="cpu-echo", digest="sha256:cpu", versions=("sha256:cpu",)),
        ObservedBackend(name="echo", is_meta=True, concrete="cuda-echo"),
    ]
    state = NodeBackends(node=machine(), backends=backends, newest={})
    names = {"sha256:cpu": "cpu-echo", "sha256:c1": "cuda-echo"}
    specs = {one: BackendSpec(reference="echo", build=BuildRef(name=names[one], digest=one)) for one in good}
    [intent], skipped = plan_rollbacks([state], "echo", to=to, specs=specs)
    assert (intent.spec.build.name, intent.spec.build.digest) == expected
    assert skipped == []
