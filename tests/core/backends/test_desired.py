"""The desired state of a node: which of its intents and of the policies hold, under whichever name."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.backends.test_drift import BUILD, DELETED, DONE, NEW, OLD, machine, policy, spec_with, state
from corral.core.backends.build import BuildRef
from corral.core.backends.desired import (
    NO_PREVIEWS,
    Desired,
    PolicyPreviews,
    find_all_desired,
    find_conflict,
    find_desired,
    find_unresolved_policies,
)
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Ensure, OnDrift, Policy
from corral.core.backends.variants import Unfit
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend

S = IntentState
INSTALL = DONE  # generation 7
OLDER = replace(DONE, id="older", generation=5, spec=spec_with(digest=OLD))
PRESENT = policy(generation=9)
BEFORE = policy(generation=3)
ABSENT = policy(Ensure.ABSENT, generation=9)


def with_intents(
    newest: Intent | None = None, restored: Intent | None = None, *backends: ObservedBackend
) -> NodeBackends:
    return NodeBackends(
        node=machine(),
        backends=list(backends),
        newest={"echo": newest} if newest is not None else {},
        restored={"echo": restored} if restored is not None else {},
    )


@pytest.mark.parametrize(
    ("node", "policies", "expected"),
    [
        pytest.param(with_intents(), [], None, id="nothing-was-requested"),
        pytest.param(with_intents(INSTALL), [], (Verb.INSTALL, 7, False), id="the-newest-intent"),
        pytest.param(with_intents(DELETED), [], (Verb.DELETE, 7, False), id="a-delete"),
        pytest.param(with_intents(replace(INSTALL, state=S.PENDING)), [], (Verb.INSTALL, 7, False), id="a-pending-one"),
        pytest.param(with_intents(replace(INSTALL, state=S.RUNNING)), [], (Verb.INSTALL, 7, False), id="a-running-one"),
        pytest.param(
            with_intents(replace(INSTALL, state=S.UNCONFIRMED)), [], (Verb.INSTALL, 7, False), id="an-unconfirmed-one"
        ),
        pytest.param(
            with_intents(replace(INSTALL, state=S.DEAD_LETTERED)),
            [],
            (Verb.INSTALL, 7, False),
            id="exhausted-retries-do-not-change-what-is-desired",
        ),
        pytest.param(with_intents(replace(INSTALL, state=S.CANCELLED)), [], None, id="a-cancelled-one-does-not-hold"),
        pytest.param(with_intents(replace(INSTALL, state=S.SUPERSEDED)), [], None, id="nor-does-a-superseded-one"),
        pytest.param(
            with_intents(replace(INSTALL, state=S.CANCELLED), replace(OLDER, state=S.SUPERSEDED)),
            [],
            (Verb.INSTALL, 5, False),
            id="the-one-that-a-cancelled-one-had-replaced-holds-again",
        ),
        pytest.param(
            with_intents(replace(INSTALL, state=S.CANCELLED), replace(OLDER, state=S.CANCELLED)),
            [],
            None,
            id="unless-it-was-cancelled-itself",
        ),
        pytest.param(with_intents(), [PRESENT], (Verb.INSTALL, 9, True), id="a-policy-alone"),
        pytest.param(with_intents(), [ABSENT], (Verb.DELETE, 9, True), id="a-policy-that-keeps-it-absent"),
        pytest.param(with_intents(), [policy(selector={"a": "b"})], None, id="a-policy-that-does-not-match"),
        pytest.param(with_intents(INSTALL), [PRESENT], (Verb.INSTALL, 9, True), id="a-newer-policy"),
        pytest.param(with_intents(INSTALL), [ABSENT], (Verb.DELETE, 9, True), id="a-newer-policy-of-the-other-kind"),
        pytest.param(with_intents(INSTALL), [BEFORE], (Verb.INSTALL, 7, False), id="an-older-policy"),
        pytest.param(with_intents(DELETED), [BEFORE], (Verb.DELETE, 7, False), id="a-delete-after-the-policy"),
        pytest.param(
            with_intents(replace(DELETED, state=S.CANCELLED)),
            [BEFORE],
            (Verb.INSTALL, 3, True),
            id="a-cancelled-delete-leaves-the-policy-in-force",
        ),
        pytest.param(
            with_intents(replace(INSTALL, verb=Verb.UPGRADE, state=S.CANCELLED)),
            [BEFORE],
            (Verb.INSTALL, 3, True),
            id="so-does-a-cancelled-upgrade",
        ),
        pytest.param(
            with_intents(replace(INSTALL, state=S.CANCELLED)),
            [BEFORE],
            None,
            id="a-cancelled-install-is-not-repeated-by-its-policy",
        ),
        pytest.param(
            with_intents(replace(DELETED, state=S.CANCELLED)),
            [policy(Ensure.ABSENT, generation=3)],
            None,
            id="nor-is-a-cancelled-delete",
        ),
        pytest.param(
            with_intents(replace(INSTALL, state=S.CANCELLED), replace(DELETED, generation=5, state=S.SUPERSEDED)),
            [BEFORE],
            (Verb.DELETE, 5, False),
            id="a-restored-intent-is-newer-than-the-policy",
        ),
    ],
)
def test_find_desired(node: NodeBackends, policies: list[Policy], expected: tuple[Verb, int, bool] | None) -> None:
    desired = find_desired(node, "echo", policies)
    assert (None if desired is None else (desired.verb, desired.generation, desired.by_policy)) == expected
    assert find_desired(node, "other", policies) is None


@pytest.mark.parametrize(
    ("spec", "resolved"),
    [
        pytest.param(BackendSpec(reference="echo"), False, id="only-a-name"),
        pytest.param(
            BackendSpec(reference="echo", build=BuildRef(name="cpu-echo")), False, id="a-build-without-a-source"
        ),
        pytest.param(BackendSpec(reference="echo", build=BuildRef(uris=("u",))), True, id="a-resolved-source"),
        pytest.param(BackendSpec(reference="echo", uri="u"), True, id="a-source-of-its-own"),
        pytest.param(BackendSpec(reference="echo", galleries="[]"), True, id="the-worker-resolves-it"),
    ],
)
def test_an_intent_is_resolved_if_it_names_a_source(spec: BackendSpec, resolved: bool) -> None:
    desired = find_desired(with_intents(replace(DONE, spec=spec)), "echo", [])
    assert desired is not None
    assert desired.resolved is resolved
    by_policy = find_desired(with_intents(), "echo", [policy(spec=spec)])
    assert by_policy is not None
    assert not by_policy.resolved, "a policy is looked up for each node"


@pytest.mark.parametrize(
    ("policies", "on_drift"),
    [
        pytest.param([], OnDrift.CORRECT, id="without-a-policy-drift-is-corrected"),
        pytest.param([policy(on_drift=OnDrift.REPORT, generation=3)], OnDrift.REPORT, id="an-older-policy-decides-too"),
        pytest.param([policy(on_drift=OnDrift.FREEZE, generation=9)], OnDrift.FREEZE, id="and-a-newer-one"),
        pytest.param([policy(on_drift=OnDrift.FREEZE, selector={"a": "b"})], OnDrift.CORRECT, id="if-it-matches"),
    ],
)
def test_the_policy_decides_what_happens_on_drift(policies: list[Policy], on_drift: OnDrift) -> None:
    desired = find_desired(with_intents(INSTALL), "echo", policies)
    assert desired is not None
    assert desired.on_drift is on_drift


@pytest.mark.parametrize(
    ("node", "policies", "previews", "names"),
    [
        pytest.param(with_intents(INSTALL), [], NO_PREVIEWS, {"echo", "cpu-echo"}, id="the-build-of-the-intent"),
        pytest.param(
            with_intents(replace(INSTALL, spec=spec_with(alias="e"))),
            [],
            NO_PREVIEWS,
            {"echo", "cpu-echo", "e"},
            id="and-its-alias",
        ),
        pytest.param(with_intents(), [PRESENT], NO_PREVIEWS, {"echo"}, id="a-policy-before-its-preview"),
        pytest.param(
            with_intents(),
            [PRESENT],
            {("echo", NodeId("n")): frozenset({"gpu-echo", "x"})},
            {"echo", "gpu-echo", "x"},
            id="a-policy-with-its-preview",
        ),
        pytest.param(
            with_intents(INSTALL),
            [],
            {("echo", NodeId("n")): frozenset({"gpu-echo"})},
            {"echo", "cpu-echo"},
            id="an-intent-needs-no-preview",
        ),
        pytest.param(
            with_intents(None, None, ObservedBackend(name="mine", alias="echo")),
            [PRESENT],
            NO_PREVIEWS,
            {"echo", "mine"},
            id="what-is-installed-under-the-alias",
        ),
        pytest.param(
            with_intents(None, None, ObservedBackend(name="mine", alias="echo")),
            [ABSENT],
            NO_PREVIEWS,
            {"echo", "mine"},
            id="a-delete-names-the-build",
        ),
        pytest.param(
            with_intents(
                replace(DELETED, spec=BackendSpec(reference="echo")), None, ObservedBackend(name="echo", alias="e")
            ),
            [],
            NO_PREVIEWS,
            {"echo"},
            id="but-not-the-alias-of-another-build",
        ),
    ],
)
def test_names(node: NodeBackends, policies: list[Policy], previews: PolicyPreviews, names: set[str]) -> None:
    desired = find_desired(node, "echo", policies, previews)
    assert desired is not None
    assert desired.names == names


def test_a_policy_without_a_fitting_build_desires_nothing() -> None:
    assert find_desired(with_intents(), "echo", [PRESENT], {("echo", NodeId("n")): Unfit("arm only")}) is None


def kept(verb: Verb, generation: int, *names: str) -> Desired:
    found = find_desired(with_intents(replace(DONE, verb=verb, generation=generation)), "echo", [])
    assert found is not None
    return replace(found, names=frozenset(names))


@pytest.mark.parametrize(
    ("desired", "verb", "names", "generation", "conflict"),
    [
        pytest.param({"a": kept(Verb.DELETE, 9, "a", "x")}, Verb.INSTALL, {"x"}, 5, "a", id="a-newer-delete"),
        pytest.param({"a": kept(Verb.DELETE, 3, "a", "x")}, Verb.INSTALL, {"x"}, 5, None, id="an-older-delete"),
        pytest.param({"a": kept(Verb.DELETE, 5, "a", "x")}, Verb.INSTALL, {"x"}, 5, None, id="the-same-generation"),
        pytest.param({"a": kept(Verb.DELETE, 9, "a")}, Verb.INSTALL, {"x"}, 5, None, id="of-another-name"),
        pytest.param({"a": kept(Verb.INSTALL, 9, "a")}, Verb.DELETE, {"a"}, 5, "a", id="a-newer-install"),
        pytest.param({"a": kept(Verb.INSTALL, 9, "a")}, Verb.UPGRADE, {"a"}, 5, None, id="of-the-same-kind"),
        pytest.param(
            {"a": kept(Verb.DELETE, 9, "a"), "b": kept(Verb.DELETE, 9, "x")},
            Verb.INSTALL,
            {"x"},
            5,
            "b",
            id="one-of-two",
        ),
        pytest.param({}, Verb.INSTALL, {"x"}, 5, None, id="nothing-desired"),
    ],
)
def test_find_conflict(
    desired: dict[str, Desired], verb: Verb, names: set[str], generation: int, conflict: str | None
) -> None:
    assert find_conflict(desired, verb, frozenset(names), generation) == conflict


def several(*intents: Intent, backends: tuple[ObservedBackend, ...] = ()) -> NodeBackends:
    return NodeBackends(node=machine(), backends=list(backends), newest={one.backend: one for one in intents})


@pytest.mark.parametrize(
    ("node", "policies", "verbs"),
    [
        pytest.param(several(), [], {}, id="nothing"),
        pytest.param(several(INSTALL), [], {"echo": Verb.INSTALL}, id="one"),
        pytest.param(
            several(replace(BUILD, generation=20), replace(DELETED, generation=10)),
            [],
            {"cpu-echo": Verb.INSTALL},
            id="a-build-installed-after-its-family-was-deleted",
        ),
        pytest.param(
            several(replace(BUILD, generation=5), replace(DELETED, generation=10)),
            [],
            {"echo": Verb.DELETE},
            id="a-family-deleted-after-its-build-was-installed",
        ),
        pytest.param(
            several(replace(BUILD, generation=5)), [ABSENT], {"echo": Verb.DELETE}, id="deleted-everywhere-since"
        ),
        pytest.param(
            several(replace(BUILD, generation=20)), [ABSENT], {"cpu-echo": Verb.INSTALL}, id="installed-here-since"
        ),
        pytest.param(
            several(replace(BUILD, generation=20), INSTALL),
            [],
            {"cpu-echo": Verb.INSTALL, "echo": Verb.INSTALL},
            id="both-present",
        ),
        pytest.param(
            several(replace(DELETED, backend="cpu-echo", generation=20), replace(DELETED, generation=10)),
            [],
            {"cpu-echo": Verb.DELETE, "echo": Verb.DELETE},
            id="both-absent",
        ),
        pytest.param(
            several(replace(BUILD, generation=20, state=S.CANCELLED), replace(DELETED, generation=10)),
            [],
            {"echo": Verb.DELETE},
            id="a-cancelled-intent-excludes-nothing",
        ),
        pytest.param(
            several(INSTALL),
            [policy(backend="other", id="q", generation=20)],
            {"echo": Verb.INSTALL, "other": Verb.INSTALL},
            id="backends-that-share-no-name",
        ),
    ],
)
def test_find_all_desired(node: NodeBackends, policies: list[Policy], verbs: dict[str, Verb]) -> None:
    assert {backend: one.verb for backend, one in find_all_desired(node, policies).items()} == verbs


@pytest.mark.parametrize(
    ("generations", "digests", "decides"),
    [
        pytest.param((5, 6), (OLD, OLD), ("echo",), id="the-family-is-newer"),
        pytest.param((6, 5), (NEW, NEW), ("cpu-echo",), id="the-build-is-newer"),
    ],
)
def test_of_two_names_for_a_build_the_newer_decides_its_version(
    generations: tuple[int, int], digests: tuple[str, str], decides: tuple[str, ...]
) -> None:
    build = replace(BUILD, generation=generations[0])
    family = replace(DONE, generation=generations[1], spec=spec_with(digest=OLD))
    found = find_all_desired(several(build, family), [])
    assert (found["cpu-echo"].spec.build.digest, found["echo"].spec.build.digest) == digests
    assert tuple(name for name, one in found.items() if one.decides_version) == decides
    assert [one.spec.reference for one in found.values()] == ["cpu-echo", "echo"], "each keeps its own reference"


INTENTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(list(Verb)), st.sampled_from(["a", "b", "c"])),
    max_size=4,
)


@given(INTENTS)
def test_no_two_desired_states_exclude_each_other(given_intents: list[tuple[str, Verb, str]]) -> None:
    """And the newest of all is always among them."""
    newest: dict[str, Intent] = {}
    for generation, (backend, verb, build) in enumerate(given_intents, 1):
        spec = BackendSpec(reference=backend, build=BuildRef(name=build, uris=("u",)))
        newest[backend] = replace(DONE, backend=backend, verb=verb, generation=generation, spec=spec)
    found = find_all_desired(NodeBackends(node=machine(), backends=[], newest=newest), [])
    for one in found.values():
        assert find_conflict(found, one.verb, one.names, 0) is None
    if newest:
        assert max(newest, key=lambda backend: newest[backend].generation) in found


@pytest.mark.parametrize(
    ("node", "policies", "backends"),
    [
        pytest.param(state(), [PRESENT], ["echo"], id="missing-by-a-policy"),
        pytest.param(state(), [ABSENT], [], id="a-policy-that-keeps-it-absent"),
        pytest.param(state(ObservedBackend(name="echo")), [PRESENT], [], id="installed"),
        pytest.param(state(spec=replace(DONE, generation=10)), [PRESENT], [], id="a-newer-intent"),
        pytest.param(state(spec=DONE), [PRESENT], ["echo"], id="an-older-intent"),
        pytest.param(state(approved=False), [PRESENT], [], id="a-pending-node"),
        pytest.param(state(), [PRESENT, policy(backend="a", id="q")], ["a", "echo"], id="several-by-name"),
    ],
)
def test_find_unresolved_policies(node: NodeBackends, policies: list[Policy], backends: list[str]) -> None:
    questions: Any = find_unresolved_policies([node], policies)
    assert [one.backend for one in questions] == backends
    assert all(one.node is node.node for one in questions)
