"""What a revision changed, field by field."""

from typing import Any

import pytest

from corral.core.models.changes import FieldChange, find_changes


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="nothing"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, [], id="another order"),
        pytest.param({"a": 1}, {"a": 2}, [FieldChange("a", "1", "2")], id="another value"),
        pytest.param({}, {"a": "x"}, [FieldChange("a", None, '"x"')], id="added"),
        pytest.param({"a": "x"}, {}, [FieldChange("a", '"x"', None)], id="removed"),
        pytest.param({"a": None}, {}, [FieldChange("a", "null", None)], id="an empty field is a field"),
        pytest.param({"a": 1}, {"a": True}, [FieldChange("a", "1", "true")], id="a number is no flag"),
        pytest.param({"a": 1}, {"a": "1"}, [FieldChange("a", "1", '"1"')], id="a number is no text"),
        pytest.param(
            {"p": {"x": 1, "y": 2}}, {"p": {"x": 1, "y": 3}}, [FieldChange("p.y", "2", "3")], id="within a section"
        ),
        pytest.param({"p": {"x": 1}}, {"p": 1}, [FieldChange("p", '{"x": 1}', "1")], id="a section becomes a value"),
        pytest.param({"l": [1, 2]}, {"l": [2, 1]}, [FieldChange("l", "[1, 2]", "[2, 1]")], id="lists have an order"),
    ],
)
def test_changes_name_the_field_and_both_values(
    before: dict[str, Any], after: dict[str, Any], changes: list[FieldChange]
) -> None:
    assert find_changes(before, after) == changes
