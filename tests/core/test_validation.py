"""Validation errors in plain sentences."""

from typing import Any

import pytest

from corral.core.validation import describe_problem


@pytest.mark.parametrize(
    ("kind", "context", "sentence"),
    [
        ("missing", {}, "is missing"),
        ("extra_forbidden", {}, "is not a known field"),
        ("int_parsing", {}, "must be a whole number"),
        ("bool_type", {}, "must be true or false"),
        ("greater_than_equal", {"ge": 1}, "must be at least 1"),
        ("less_than", {"lt": 65536}, "must be less than 65536"),
        ("string_too_long", {"max_length": 64}, "must have at most 64 characters"),
        ("string_too_short", {"min_length": 3}, "must have at least 3 characters"),
        ("string_too_short", {"min_length": 1}, "must not be empty"),
        ("too_long", {"max_length": 100}, "must have at most 100 items"),
        ("enum", {"expected": "'a' or 'b'"}, "must be 'a' or 'b'"),
        ("string_pattern_mismatch", {"pattern": "^(all|waves|canary)$"}, "must be all, waves or canary"),
    ],
)
def test_known_kinds_have_a_sentence(kind: str, context: dict[str, Any], sentence: str) -> None:
    assert describe_problem(kind, context=context, message="of the validator") == sentence


@pytest.mark.parametrize(
    ("kind", "context", "message", "sentence"),
    [
        pytest.param("value_error", {}, "Value error, no such zone", "no such zone", id="our-own-validators"),
        pytest.param("url_scheme", {}, "URL scheme should be http", "URL scheme should be http", id="a-rare-kind"),
        pytest.param(
            "string_pattern_mismatch", {"pattern": r"^\d+$"}, "String should match", "String should match", id="no-list"
        ),
    ],
)
def test_other_kinds_keep_the_validators_text(kind: str, context: dict[str, Any], message: str, sentence: str) -> None:
    assert describe_problem(kind, context=context, message=message) == sentence
