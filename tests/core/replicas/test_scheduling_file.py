"""The scheduling file that is read at start, in LocalAI's format."""

from typing import Any

import pytest

from corral.core.errors import InvalidInput
from corral.core.replicas.scaling import Scheduling
from corral.core.replicas.scheduling_file import parse_seed


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(None, [], id="an-empty-file"),
        pytest.param([], [], id="an-empty-list"),
        pytest.param([{"model_name": "m"}], [Scheduling(model="m")], id="a-model-without-limits"),
        pytest.param(
            [{"model_name": "m", "min_replicas": 1, "max_replicas": 3}],
            [Scheduling(model="m", min_replicas=1, max_replicas=3)],
            id="a-minimum-and-a-maximum",
        ),
        pytest.param(
            [{"model_name": "m", "node_selector": {"rack": 2}}],
            [Scheduling(model="m", selector={"rack": "2"})],
            id="labels-become-texts",
        ),
        pytest.param([{"model_name": "m", "replicas": "all"}], [Scheduling(model="m", spread_all=True)], id="all"),
        pytest.param([{"model_name": "m", "replicas": True}], [Scheduling(model="m", spread_all=True)], id="true"),
        pytest.param(
            [{"model_name": "m", "spread_all": True}], [Scheduling(model="m", spread_all=True)], id="spread-all"
        ),
        pytest.param([{"model_name": "m", "replicas": "auto"}], [Scheduling(model="m")], id="auto"),
        pytest.param([{"model_name": "m", "replicas": False}], [Scheduling(model="m")], id="false"),
        pytest.param(
            [
                {
                    "model_name": "m",
                    "route_policy": "prefix_cache",
                    "balance_rel_threshold": 2,
                    "balance_abs_threshold": 3,
                }
            ],
            [Scheduling(model="m", route_policy="prefix_cache", balance_rel_threshold=2.0, balance_abs_threshold=3)],
            id="a-route-policy-with-its-thresholds",
        ),
        pytest.param([{"model_name": "m", "min_prefix_match": 0}], [Scheduling(model="m")], id="no-prefix-match"),
        pytest.param([{"model_name": "m", "min_replicas": None}], [Scheduling(model="m")], id="an-empty-field"),
        pytest.param(
            [{"model_name": "a"}, {"model_name": "b"}],
            [Scheduling(model="a"), Scheduling(model="b")],
            id="several-models",
        ),
    ],
)
def test_what_is_read(document: Any, expected: list[Scheduling]) -> None:
    assert parse_seed(document, source="s.yaml") == expected


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param({"model_name": "m"}, "s.yaml is not a list", id="a-map-instead-of-a-list"),
        pytest.param(["m"], r"s.yaml\[0\] is not a map", id="a-name-instead-of-a-map"),
        pytest.param(
            [{"model_name": 5}], r"s.yaml\[0\].model_name has a value of the wrong type: 5", id="a-number-as-name"
        ),
        pytest.param(
            [{"model_name": "m"}, {"model_name": "n", "min_replicas": "2"}],
            r"s.yaml\[1\].min_replicas has a value of the wrong type: '2'",
            id="a-text-as-a-number-in-the-second-entry",
        ),
        pytest.param([{"model_name": "m", "min_replicas": True}], "of the wrong type: True", id="a-flag-as-a-number"),
        pytest.param([{"model_name": "m", "node_selector": "x"}], "is not a map of labels", id="a-text-as-a-selector"),
        pytest.param([{"model_name": "m", "replicas": 2}], "numbers in min_replicas", id="a-number-of-replicas"),
        pytest.param([{"model_name": "m", "replicas": 1}], "write `all` or `auto` here", id="also-the-number-one"),
        pytest.param([{"min_replicas": 1}], r"s.yaml\[0\]: model_name is required", id="no-model"),
        pytest.param(
            [{"model_name": "m", "replicas": "all", "min_replicas": 1}],
            r"s.yaml\[0\]: spread_all means one replica on every matching node",
            id="spread-with-a-minimum",
        ),
        pytest.param([{"model_name": "m", "min_prefix_match": 0.5}], "has no effect in Corral", id="a-prefix-match"),
    ],
)
def test_what_is_rejected_and_where(document: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_seed(document, source="s.yaml")
