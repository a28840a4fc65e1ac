"""Which nodes a request is for, by its query."""

import pytest

from corral.core.errors import InvalidInput
from corral.frontend.api.backends.targets import Targeted, targeted_by


@pytest.mark.parametrize(
    ("nodes", "selectors", "expected"),
    [
        pytest.param([], [], Targeted(), id="every-node"),
        pytest.param(["a", "b"], [], Targeted(nodes=["a", "b"]), id="named-nodes"),
        pytest.param([], ["room=b2", "gpu="], Targeted(selector={"room": "b2", "gpu": ""}), id="labels"),
        pytest.param([], ["expr=a=b"], Targeted(selector={"expr": "a=b"}), id="a-value-may-contain-the-sign"),
    ],
)
def test_a_query_names_nodes_or_labels(nodes: list[str], selectors: list[str], expected: Targeted) -> None:
    assert targeted_by(nodes, selectors) == expected


@pytest.mark.parametrize("selector", ["room", "=b2", ""])
def test_a_selector_without_key_or_value_is_rejected(selector: str) -> None:
    with pytest.raises(InvalidInput, match="write key=value"):
        targeted_by([], ["room=b2", selector])
