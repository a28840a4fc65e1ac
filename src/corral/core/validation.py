"""Describes validation errors in plain sentences. The kinds are pydantic's; this module only knows their names."""

from collections.abc import Mapping
from typing import Any

_SENTENCES = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "json_invalid": "the body is not JSON",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "path_type": "must be a path",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
}


def describe_problem(kind: str, *, context: Mapping[str, Any], message: str) -> str:
    """`message` is the validator's own text, used for kinds without a sentence here."""
    if kind == "string_pattern_mismatch":
        choices = str(context.get("pattern", "")).removeprefix("^(").removesuffix(")$").split("|")
        return f"must be {', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else message
    if kind == "string_too_short" and context.get("min_length") == 1:
        return "must not be empty"
    sentence = _SENTENCES.get(kind)
    return sentence.format_map(context) if sentence else message.removeprefix("Value error, ")
