"""The fields of a model configuration: their types, problems with them, and suggestions for mistyped names."""

from typing import Any

import pytest

from corral.core.errors import InvalidInput
from corral.core.models.config_schema import (
    FIELDS,
    UNKNOWN_SHOWN,
    Read,
    WrongValue,
    check_fields,
    find_problems,
    find_unknown,
    flag,
    mapping,
    number,
    numbers,
    refuse_unknown,
    suggest,
    text,
    text_map,
    texts,
    whole,
)


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        pytest.param(text, "a", "a", id="a-text"),
        pytest.param(text, 5, "5", id="a-number-as-a-text"),
        pytest.param(text, True, "true", id="a-boolean-as-a-text"),
        pytest.param(whole, 5, 5, id="a-whole-number"),
        pytest.param(whole, -(2**31), -(2**31), id="the-smallest"),
        pytest.param(number, 5, 5.0, id="a-whole-number-as-a-number"),
        pytest.param(number, 0.5, 0.5, id="a-fraction"),
        pytest.param(flag, False, False, id="a-flag"),
        pytest.param(texts, ["a", 1], ("a", "1"), id="a-list-of-texts"),
        pytest.param(numbers, [1, 0.5], (1.0, 0.5), id="a-list-of-numbers"),
        pytest.param(mapping, {"a": 1}, {"a": 1}, id="a-map"),
        pytest.param(text_map, {"a": 1}, {"a": "1"}, id="a-map-of-texts"),
    ],
)
def test_values_that_are_accepted(read: Read, value: Any, expected: Any) -> None:
    assert read(value) == expected


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        pytest.param(text, ["a"], "text", id="a-list-as-a-text"),
        pytest.param(whole, "5", "a whole number", id="a-text-as-a-number"),
        pytest.param(whole, True, "a whole number", id="a-boolean-as-a-number"),
        pytest.param(whole, 2**31, "fits into 32 bits", id="a-number-that-is-too-large"),
        pytest.param(number, "x", "a number", id="a-text-as-a-fraction"),
        pytest.param(number, 1e39, "fits into 32 bits", id="a-fraction-that-is-too-large"),
        pytest.param(flag, 1, "true or false", id="a-number-as-a-flag"),
        pytest.param(texts, "a", "a list of strings", id="a-text-as-a-list"),
        pytest.param(numbers, 1, "a list of numbers", id="a-number-as-a-list"),
        pytest.param(mapping, [1], "a map", id="a-list-as-a-map"),
    ],
)
def test_values_that_are_not(read: Read, value: Any, expected: str) -> None:
    with pytest.raises(WrongValue, match=expected):
        read(value)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"name": "m", "context_size": 512}, [], id="a-good-one"),
        pytest.param({"context_size": "x"}, ["context_size must be a whole number, not 'x'"], id="a-field"),
        pytest.param(
            {"parameters": {"temperature": "hot"}},
            ["parameters.temperature must be a number, not 'hot'"],
            id="a-nested-field",
        ),
        pytest.param({"parameters": 5}, ["parameters must be a map, not 5"], id="a-section-that-is-no-map"),
        pytest.param({"context_size": None}, [], id="an-empty-field-is-not-set"),
        pytest.param({"my_field": object()}, [], id="an-unknown-field-has-no-type"),
        pytest.param(
            {"f16": 1, "threads": "x"},
            ["f16 must be true or false, not 1", "threads must be a whole number, not 'x'"],
            id="all-problems-at-once",
        ),
    ],
)
def test_find_problems(document: dict[str, Any], expected: list[str]) -> None:
    assert [str(problem) for problem in find_problems(document, FIELDS)] == expected


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param({"f16": 1}, "has an invalid field: f16 must be", id="one"),
        pytest.param({"f16": 1, "threads": "x"}, "has 2 invalid fields: f16 must be .*; threads must be", id="several"),
    ],
)
def test_the_error_names_every_wrong_field(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_fields(document)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"name": "m"}, [], id="none"),
        pytest.param({"contxt_size": 5}, ["contxt_size"], id="at-the-top"),
        pytest.param({"parameters": {"temprature": 1}}, ["parameters.temprature"], id="in-a-section"),
        pytest.param({"function": {"anything": 1}}, [], id="a-free-map-has-no-unknown-fields"),
    ],
)
def test_find_unknown(document: dict[str, Any], expected: list[str]) -> None:
    assert list(find_unknown(document)) == expected


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        pytest.param("contxt_size", ["context_size"], id="a-similar-name"),
        pytest.param("temperature", ["parameters.temperature"], id="the-same-name-in-another-section"),
        pytest.param("parameters.temprature", ["parameters.temperature"], id="a-similar-name-in-the-same-section"),
        pytest.param("qqqqqq", [], id="nothing-similar"),
    ],
)
def test_suggestions(unknown: str, expected: list[str]) -> None:
    assert suggest(unknown) == expected


@pytest.mark.parametrize(
    ("document", "known", "message"),
    [
        pytest.param(
            {"contxt_size": 5}, None, r"an unknown field: contxt_size \(did you mean context_size\?\)", id="one"
        ),
        pytest.param({"qqqqqq": 1, "zzzzzz": 1}, None, "2 unknown fields: qqqqqq, zzzzzz", id="several"),
        pytest.param({"qqqqqq": 1, "zzzzzz": 1}, {"qqqqqq": 1}, "an unknown field: zzzzzz", id="only-new-ones"),
        pytest.param({f"qqqq{at}": 1 for at in range(UNKNOWN_SHOWN + 2)}, None, "2 more", id="a-bounded-list"),
    ],
)
def test_unknown_fields_are_rejected(document: dict[str, Any], known: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        refuse_unknown(document, known=known)


def test_unknown_fields_that_were_accepted_before_stay_accepted() -> None:
    refuse_unknown({"qqqqqq": 1, "name": "m"}, known={"qqqqqq": 2})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            {"reasoning": {"tag_pair": []}},
            r"reasoning\.tag_pair \(did you mean reasoning\.tag_pairs\?\)",
            id="reasoning",
        ),
        pytest.param({"pipeline": {"transcripton": "w"}}, r"did you mean pipeline\.transcription\?", id="pipeline"),
        pytest.param({"function": {"grammer": {}}}, r"did you mean function\.grammar\?", id="function"),
    ],
)
def test_a_mistyped_name_in_a_section_of_localai_is_rejected(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        refuse_unknown(document)
    refuse_unknown(document, known=document)


def test_other_names_in_a_section_of_localai_are_accepted() -> None:
    """Another version of LocalAI may read them."""
    refuse_unknown({"function": {"zzz": True, "return_name_in_function_response": True}, "mcp": {"remote": ""}})
