"""Labels of a node: which are valid, where they come from, and what a selector matches."""

from typing import Any

import pytest

from core.replicas.test_availability import node
from corral.core.errors import InvalidInput
from corral.core.nodes.labels import (
    MAX_LABELS,
    RESERVED,
    check_labels,
    check_operator_labels,
    derived_labels,
    effective_labels,
    matches,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        pytest.param({"": "x"}, "'' is not a valid label key", id="an-empty-key"),
        pytest.param({"a b": "x"}, "'a b' is not a valid label key", id="a-space-in-a-key"),
        pytest.param({"-a": "x"}, "start with a letter or digit", id="a-hyphen-at-the-start"),
        pytest.param({"a\n": "x"}, "is not a valid label key", id="a-newline-in-a-key"),
        pytest.param({"a" * 128: "x"}, "is not a valid label key", id="a-key-that-is-too-long"),
        pytest.param({"a": "x\ny"}, "control characters", id="a-newline-in-a-value"),
        pytest.param({"a": "x" * 256}, "longer than 255 characters", id="a-value-that-is-too-long"),
        pytest.param(
            {f"k{at}": "" for at in range(MAX_LABELS + 1)}, "a node can have at most 64", id="too-many-labels"
        ),
    ],
)
def test_labels_that_are_rejected(labels: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_labels(labels)


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"rack": "b2", "gpu.vendor": "nvidia", "team/owner": "Ærø & sons"}, id="usual-labels"),
        pytest.param({"a" * 127: "x" * 255}, id="the-longest"),
        pytest.param({f"k{at}": "" for at in range(MAX_LABELS)}, id="the-most"),
        pytest.param({"0": ""}, id="a-digit-and-an-empty-value"),
    ],
)
def test_labels_that_are_accepted(labels: dict[str, str]) -> None:
    check_labels(labels)


@pytest.mark.parametrize("key", RESERVED)
def test_an_administrator_cannot_override_a_derived_label(key: str) -> None:
    with pytest.raises(InvalidInput, match=f"Corral sets the label '{key}'"):
        check_operator_labels({key: "x"})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, {"node.name": "n", "node.replica-slots": "1"}, id="a-node-without-a-gpu"),
        pytest.param(
            {"max_replicas_override": 3}, {"node.name": "n", "node.replica-slots": "3"}, id="its-replica-limit"
        ),
        pytest.param(
            {"gpu_vendor": "nvidia", "total_vram": 24 * GIB},
            {"node.name": "n", "node.replica-slots": "1", "gpu.vendor": "nvidia", "gpu.vram": "24GB"},
            id="its-gpu-and-the-size-class-of-its-memory",
        ),
        pytest.param(
            {"gpu_vendor": "intel"},
            {"node.name": "n", "node.replica-slots": "1", "gpu.vendor": "intel"},
            id="a-gpu-of-unknown-memory-has-no-size-class",
        ),
    ],
)
def test_labels_that_are_derived_from_the_hardware(fields: dict[str, Any], expected: dict[str, str]) -> None:
    assert derived_labels(node(**fields)) == expected


@pytest.mark.parametrize(
    ("worker", "operator", "key", "expected"),
    [
        pytest.param({"rack": "1"}, {}, "rack", "1", id="a-worker-sets-labels"),
        pytest.param({"rack": "1"}, {"rack": "2"}, "rack", "2", id="an-administrator-overrides-them"),
        pytest.param({"node.name": "other"}, {}, "node.name", "n", id="a-derived-label-overrides-the-worker"),
        pytest.param({}, {"node.name": "other"}, "node.name", "n", id="and-the-administrator"),
    ],
)
def test_which_of_several_labels_counts(
    worker: dict[str, str], operator: dict[str, str], key: str, expected: str
) -> None:
    assert effective_labels(node(worker_labels=worker, operator_labels=operator))[key] == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param({}, True, id="an-empty-selector-matches-every-node"),
        pytest.param({"rack": "1"}, True, id="an-equal-value"),
        pytest.param({"rack": "2"}, False, id="another-value"),
        pytest.param({"rack": "1", "node.name": "n"}, True, id="all-labels-match"),
        pytest.param({"rack": "1", "tier": "fast"}, False, id="one-label-is-missing"),
        pytest.param({"tier": ""}, False, id="a-missing-label-is-not-an-empty-one"),
    ],
)
def test_what_a_selector_matches(selector: dict[str, str], expected: bool) -> None:
    assert matches(node(worker_labels={"rack": "1"}), selector) is expected
