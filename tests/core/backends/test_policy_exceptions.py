"""Where a policy does not hold, and why."""

from dataclasses import replace

import pytest

from core.backends.test_drift import (
    ABSENT,
    BUILD,
    DELETED,
    DONE,
    FAMILY_DELETED,
    HAS_BUILD,
    both,
    machine,
    policy,
    state,
)
from corral.core.backends.intents import BackendSpec, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Ensure, Policy
from corral.core.backends.policy_exceptions import ExceptionCause, find_exceptions
from corral.core.backends.variants import Unfit
from corral.core.nodes.presence import Presence

LATER = 20
C = ExceptionCause
BUILD_EVERYWHERE = policy(backend="cpu-echo", spec=BackendSpec(reference="cpu-echo"))
NO_GPU = policy(Ensure.ABSENT, id="other", selector={"gpu": "yes"}, generation=LATER)


@pytest.mark.parametrize(
    ("node", "policies", "told"),
    [
        pytest.param(state(), [policy()], None, id="it-holds-though-it-is-not-true-yet"),
        pytest.param(state(spec=replace(DELETED, generation=8)), [policy()], None, id="deleted-before-that"),
        pytest.param(
            state(spec=replace(DELETED, generation=LATER)), [policy()], (C.DELETED, "echo", True), id="deleted-here"
        ),
        pytest.param(
            state(spec=replace(DELETED, generation=LATER, state=IntentState.PENDING)),
            [policy()],
            (C.DELETED, "echo", False),
            id="to-be-deleted-here",
        ),
        pytest.param(
            state(spec=replace(DELETED, generation=LATER), presence=Presence.GONE),
            [policy()],
            (C.DELETED, "echo", True),
            id="deleted-on-a-machine-that-is-away",
        ),
        pytest.param(
            state(spec=replace(DELETED, generation=LATER), approved=False), [policy()], None, id="pending-has-none"
        ),
        pytest.param(
            state(spec=replace(DELETED, generation=LATER)), [policy(selector={"a": "b"})], None, id="it-is-for-others"
        ),
        pytest.param(
            state(spec=replace(DONE, generation=LATER)), [policy(Ensure.ABSENT)], (C.INSTALLED, "echo", True),
            id="installed-here",
        ),
        pytest.param(
            both(HAS_BUILD, build=replace(BUILD, generation=LATER), family=None),
            [ABSENT],
            (C.INSTALLED, "cpu-echo", True),
            id="a-build-of-it-installed-here",
        ),
        pytest.param(
            both(build=replace(BUILD, generation=9), family=FAMILY_DELETED),
            [BUILD_EVERYWHERE],
            (C.DELETED, "echo", True),
            id="its-family-deleted-here",
        ),
        pytest.param(
            both(
                build=replace(DELETED, backend="cpu-echo", generation=LATER),
                family=replace(DONE, generation=9, state=IntentState.SUPERSEDED),
            ),
            [policy()],
            (C.DELETED, "cpu-echo", True),
            id="its-build-deleted-here-before-it-was-there",
        ),
        pytest.param(
            both(HAS_BUILD, build=replace(BUILD, generation=30), family=replace(FAMILY_DELETED, generation=LATER)),
            [policy()],
            None,
            id="deleted-here-and-a-build-of-it-installed-since",
        ),
        pytest.param(
            state(operator_labels={"gpu": "yes"}), [policy(), NO_GPU], (C.DELETED, "echo", True), id="a-newer-policy"
        ),
        pytest.param(
            state(spec=replace(DONE, generation=LATER, state=IntentState.CANCELLED)),
            [policy()],
            (C.CANCELLED, "echo", False),
            id="called-off",
        ),
    ],
)  # fmt: skip
def test_where_a_policy_does_not_apply(
    node: NodeBackends, policies: list[Policy], told: tuple[ExceptionCause, str, bool] | None
) -> None:
    found = find_exceptions([node], policies, {})
    assert [(one.cause, one.backend, one.done) for one in found.get("p", [])] == ([] if told is None else [told])
    assert set(found) <= {"p"}


def test_an_exception_names_its_operation_and_the_cancelled_intent() -> None:
    here = state(spec=replace(DELETED, generation=LATER, operation_id="delete-it"))
    ((deleted,),) = find_exceptions([here], [policy()], {}).values()
    assert (deleted.node_name, deleted.operation_id) == ("n", "delete-it")
    off = replace(DONE, generation=LATER, state=IntentState.CANCELLED, finished_at=7)
    ((called_off,),) = find_exceptions([state(spec=off)], [policy()], {}).values()
    assert (called_off.verb, called_off.ended_at) == (Verb.INSTALL, 7)
    assert find_exceptions([state(spec=replace(off, verb=Verb.UPGRADE))], [policy()], {}) == {}, "it holds all the same"


def test_previews_make_exceptions_too_sorted_by_node_name() -> None:
    a, b = (replace(state(), node=machine(id=name, name=name)) for name in "ab")
    unfit = find_exceptions(
        [b, a], [policy()], {("echo", a.node.id): Unfit("arm only"), ("echo", b.node.id): Unfit("x")}
    )
    assert [(one.node_name, one.cause, one.reason) for one in unfit["p"]] == [
        ("a", C.NO_BUILD, "arm only"),
        ("b", C.NO_BUILD, "x"),
    ]
    names = {("cpu-echo", a.node.id): frozenset({"cpu-echo", "echo"})}
    found = find_exceptions([a], [replace(BUILD_EVERYWHERE, id="build"), ABSENT], names)
    assert {policy_id: [one.backend for one in those] for policy_id, those in found.items()} == {"build": ["echo"]}
