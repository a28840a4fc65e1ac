"""Which policy applies to a node."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.backends.test_drift import machine, policy
from corral.core.backends.policies import Ensure, OnDrift, Policy, policy_for
from corral.core.nodes.node import Node, NodeType
from corral.core.nodes.presence import Presence

EVERYWHERE = policy(id="everywhere", generation=1)
FAST_ONLY = policy(id="fast", selector={"tier": "fast"}, generation=2)
NEWER = policy(id="newer", ensure=Ensure.ABSENT, generation=3)
OTHER = policy(id="other", backend="other", generation=9)
FAST = machine(worker_labels={"tier": "fast"})


@pytest.mark.parametrize(
    ("node", "policies", "expected"),
    [
        pytest.param(FAST, [], None, id="no-policies"),
        pytest.param(machine(), [OTHER], None, id="only-of-another-backend"),
        pytest.param(machine(), [EVERYWHERE], "everywhere", id="without-a-selector-every-node"),
        pytest.param(machine(), [FAST_ONLY], None, id="a-selector-that-does-not-match"),
        pytest.param(FAST, [FAST_ONLY], "fast", id="a-selector-that-matches"),
        pytest.param(FAST, [EVERYWHERE, FAST_ONLY], "fast", id="the-newer-of-two"),
        pytest.param(FAST, [FAST_ONLY, EVERYWHERE], "fast", id="in-either-order"),
        pytest.param(machine(), [EVERYWHERE, FAST_ONLY], "everywhere", id="the-older-where-the-newer-does-not-match"),
        pytest.param(FAST, [EVERYWHERE, FAST_ONLY, NEWER], "newer", id="a-delete-that-is-newest"),
        pytest.param(FAST, [NEWER, OTHER], "newer", id="a-newer-one-of-another-backend-does-not-count"),
        pytest.param(machine(operator_labels={"tier": "fast"}), [FAST_ONLY], "fast", id="by-a-label-of-an-operator"),
        pytest.param(
            machine(worker_labels={"tier": "fast"}, operator_labels={"tier": "slow"}),
            [FAST_ONLY],
            None,
            id="an-operators-label-overrides-the-workers",
        ),
        pytest.param(machine(approved=False), [EVERYWHERE], None, id="a-pending-node"),
        pytest.param(machine(node_type=NodeType.AGENT), [EVERYWHERE], None, id="an-agent"),
        pytest.param(machine(presence=Presence.GONE), [EVERYWHERE], "everywhere", id="an-offline-node-too"),
        pytest.param(machine(drain_requested=True), [EVERYWHERE], "everywhere", id="a-draining-node-too"),
        pytest.param(machine(key_hash=None), [EVERYWHERE], "everywhere", id="a-localai-worker-too"),
    ],
)
def test_policy_for(node: Node, policies: list[Policy], expected: str | None) -> None:
    found = policy_for(node, "echo", policies)
    assert (found.id if found is not None else None) == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6, unique=True))
def test_the_newest_policy_applies_whatever_their_order(generations: list[int]) -> None:
    found = policy_for(machine(), "echo", [policy(generation=generation) for generation in generations])
    assert found is not None
    assert found.generation == max(generations)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"selector": {"tier": "fast", "zone": "a"}}, False, id="all-labels-have-to-match"),
        pytest.param({"selector": {"tier": "fast"}}, True, id="others-do-not-matter"),
        pytest.param({"selector": {"tier": "FAST"}}, False, id="values-are-exact"),
    ],
)
def test_a_selector_matches_labels(fields: dict[str, Any], expected: bool) -> None:
    labels = {"tier": "fast", "zone": "b"}
    assert (policy_for(machine(worker_labels=labels), "echo", [policy(**fields)]) is not None) is expected


@pytest.mark.parametrize("on_drift", list(OnDrift))
def test_the_reaction_to_drift_does_not_decide_which_policy_applies(on_drift: OnDrift) -> None:
    one = replace(EVERYWHERE, on_drift=on_drift)
    assert policy_for(machine(), "echo", [one]) is one


def test_values_as_the_api_writes_them() -> None:
    assert [ensure.value for ensure in Ensure] == ["present", "absent"]
    assert [on_drift.value for on_drift in OnDrift] == ["correct", "report", "freeze"]


LABELS = st.dictionaries(st.sampled_from(["tier", "zone"]), st.sampled_from(["a", "b"]))
POLICIES = st.lists(st.tuples(st.sampled_from(["echo", "other"]), LABELS), max_size=5)


@given(LABELS, POLICIES)
def test_no_matching_policy_is_newer_than_the_one_that_applies(
    labels: dict[str, str], given_policies: list[tuple[str, dict[str, str]]]
) -> None:
    policies = [
        policy(backend=backend, selector=selector, generation=generation)
        for generation, (backend, selector) in enumerate(given_policies)
    ]
    matching = [one for one in policies if one.backend == "echo" and one.selector.items() <= labels.items()]
    found = policy_for(machine(worker_labels=labels), "echo", policies)
    assert found == (matching[-1] if matching else None)


@pytest.mark.parametrize(
    ("earlier", "later", "ensure"),
    [
        pytest.param(Ensure.PRESENT, Ensure.ABSENT, Ensure.ABSENT, id="deleted-after-it-was-installed"),
        pytest.param(Ensure.ABSENT, Ensure.PRESENT, Ensure.PRESENT, id="installed-after-it-was-deleted"),
        pytest.param(Ensure.PRESENT, Ensure.PRESENT, Ensure.PRESENT, id="installed-twice"),
    ],
)
def test_the_later_policy_decides_whether_a_backend_is_present(earlier: Ensure, later: Ensure, ensure: Ensure) -> None:
    found = policy_for(machine(), "echo", [policy(earlier, generation=1), policy(later, generation=2)])
    assert found is not None
    assert found.ensure is ensure


@pytest.mark.parametrize("name", ["Echo", "ours@echo", "ech", ""])
def test_a_policy_applies_to_exactly_its_own_name(name: str) -> None:
    assert policy_for(machine(), name, [EVERYWHERE]) is None
