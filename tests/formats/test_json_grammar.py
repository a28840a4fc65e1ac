"""Grammars of JSON schemas: what a model may write, and which schemas are refused."""

import json
import re
from typing import Any

import pytest

from corral.formats.json_grammar import ANY_OBJECT, BadSchema, schema_grammar

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "nick": {"type": "string"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def written(schema: Any) -> str:
    """The grammar's first rule with every rule of its own in place of its name."""
    text = schema_grammar(schema).removesuffix(ANY_OBJECT.removeprefix("root ::= object\n"))
    rules = dict(line.split(" ::= ", 1) for line in text.splitlines())
    found = rules["root"]
    while re.search(r"rule-\d+", found):
        found = re.sub(r"rule-\d+", lambda name: f"<{rules[name[0]]}>", found)
    return found


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(True, "value", id="anything"),
        pytest.param({"type": "integer"}, "integer", id="a-number"),
        pytest.param({"type": ["string", "null"]}, '<string | "null">', id="a-text-or-nothing"),
        pytest.param({"enum": ["a", 1, 'b"c']}, r'<"\"a\"" | "1" | "\"b\\\"c\"">', id="one-of-several"),
        pytest.param({"const": {"a": "\n"}}, r'"{\"a\": \"\\n\"}"', id="a-constant"),
        pytest.param({"allOf": [{"type": "boolean"}]}, "boolean", id="one-that-is-wrapped"),
        pytest.param(
            {"type": "array", "items": {"type": "number"}},
            '<"[" ws (number (ws "," ws number)*)? ws "]">',
            id="a-list",
        ),
        pytest.param(
            {"items": {"type": "number"}, "minItems": 2, "maxItems": 3},
            '<"[" ws number (ws "," ws number){1,2} ws "]">',
            id="a-list-of-two-or-three",
        ),
        pytest.param({"type": "array", "maxItems": 0}, '<"[" ws "]">', id="an-empty-list"),
        pytest.param(
            PERSON,
            r'<"{" ws <"\"name\"" ws ":" ws string> ws "," ws <"\"age\"" ws ":" ws integer>'
            r' <(ws "," ws <"\"nick\"" ws ":" ws string>)? ""> ws "}">',
            id="an-object-with-one-property-that-may-be-left-out",
        ),
        pytest.param(
            {"properties": {"a": True, "b": True}},
            r'<"{" ws (<"\"a\"" ws ":" ws value> <(ws "," ws <"\"b\"" ws ":" ws value>)? "">'
            r' | <"\"b\"" ws ":" ws value> "")? ws "}">',
            id="an-object-all-of-whose-properties-may-be-left-out",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": {"type": "integer"}},
            '<"{" ws (string ws ":" ws integer (ws "," ws string ws ":" ws integer)*)? ws "}">',
            id="a-map",
        ),
        pytest.param({"type": "object", "additionalProperties": False}, '<"{" ws "}">', id="an-empty-object"),
        pytest.param(
            {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "boolean"}}}, "<boolean>", id="what-is-defined-elsewhere"
        ),
    ],
)
def test_what_may_be_written(schema: Any, expected: str) -> None:
    assert written(schema) == expected


def test_a_schema_may_hold_itself() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    grammar = schema_grammar(tree)
    names = re.findall(r"^(rule-\d+) ::=", grammar, re.MULTILINE)
    assert set(re.findall(r"rule-\d+", grammar)) == set(names), "every rule that is named is there"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ([], "must be an object"),
        ({"type": "date"}, "type cannot be 'date'"),
        ({"enum": []}, "empty choice"),
        ({"anyOf": "x"}, "must be a list"),
        ({"not": {}}, "'not' is not supported"),
        ({"allOf": [{}, {}]}, "'allOf'"),
        ({"properties": {"a": {"patternProperties": {}}}}, "'patternProperties'"),
        ({"$ref": "https://example.com/schema"}, "its own parts"),
        ({"$ref": "#/$defs/x"}, "which it does not have"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}, "refers only to itself"),
        (json.loads('{"items":' * 100 + "{}" + "}" * 100), "nested too deeply"),
        ({"properties": {f"p{at}": {} for at in range(3000)}}, "too large"),
    ],
)
def test_what_no_grammar_can_tell_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(BadSchema) as refused:
        schema_grammar(schema)
    assert said in str(refused.value)
