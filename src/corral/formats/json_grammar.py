"""Grammars (GBNF) that restrict the output of a model to JSON: any object, or what a JSON schema describes.

The grammar follows what a schema says about the shape of a value: types, properties, items, choices, constants and
references. Constraints on size or text (`minimum`, `pattern`, `format`) are ignored. Keywords that no grammar can
express are rejected by name.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

DEPTH_MOST = 64
RULES_MOST = 2000
ITEMS_MOST = 100
"""Bounds of longer lists are ignored: engines limit how often a rule can be repeated."""
_REFUSED = ("not", "if", "patternProperties", "dependentSchemas", "prefixItems", "$dynamicRef")
_PLAIN = {"string": "string", "number": "number", "integer": "integer", "boolean": "boolean", "null": '"null"'}
_COMMA = 'ws "," ws'
_BASE = r"""value ::= object | array | string | number | boolean | "null"
object ::= "{" ws (pair (ws "," ws pair)*)? ws "}"
pair ::= string ws ":" ws value
array ::= "[" ws (value (ws "," ws value)*)? ws "]"
string ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F]))* "\""
integer ::= "-"? ("0" | [1-9] [0-9]*)
number ::= integer ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
boolean ::= "true" | "false"
ws ::= [ \t\n]*
"""
ANY_OBJECT = "root ::= object\n" + _BASE


class BadSchema(ValueError):
    """A JSON schema that no grammar can express."""


def schema_grammar(schema: Any) -> str:
    """Raises BadSchema."""
    rules = _Rules(schema)
    root = rules.of(schema, 0)
    lines = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in rules.bodies.items())]
    return "\n".join(lines) + "\n" + _BASE


class _Rules:
    def __init__(self, document: Any) -> None:
        self._document = document
        self._by_reference: dict[str, str] = {}
        self.bodies: dict[str, str] = {}

    def _name(self) -> str:
        if len(self.bodies) >= RULES_MOST:
            raise BadSchema("the JSON schema is too large")
        name = f"rule-{len(self.bodies)}"
        self.bodies[name] = ""
        return name

    def _add(self, body: str) -> str:
        name = self._name()
        self.bodies[name] = body
        return name

    def of(self, schema: Any, depth: int) -> str:
        """The name that stands for a value of this schema in another rule."""
        if depth > DEPTH_MOST:
            raise BadSchema("the JSON schema is nested too deeply")
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, Mapping):
            raise BadSchema("each part of the JSON schema must be an object")
        for word in _REFUSED:
            if word in schema:
                raise BadSchema(f"a JSON schema with {word!r} is not supported by this backend")
        if "$ref" in schema:
            return self._reference(schema["$ref"], depth)
        if "const" in schema:
            return _literal(schema["const"])
        if "enum" in schema:
            return self._one_of([_literal(value) for value in _listed(schema, "enum")])
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                parts = _listed(schema, word)
                if word == "allOf" and len(parts) > 1:
                    raise BadSchema("a JSON schema with several parts in 'allOf' is not supported by this backend")
                return self._one_of([self.of(part, depth + 1) for part in parts])
        return self._of_type(schema, schema.get("type"), depth)

    def _of_type(self, schema: Mapping[str, Any], kind: Any, depth: int) -> str:
        if isinstance(kind, list):
            return self._one_of([self._of_type(schema, each, depth) for each in kind])
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, depth)
        if kind == "array" or (kind is None and "items" in schema):
            return self._array(schema, depth)
        if kind is None:
            return "value"
        if not isinstance(kind, str) or kind not in _PLAIN:
            raise BadSchema(f"a JSON schema's type cannot be {str(kind)[:40]!r}")
        return _PLAIN[kind]

    def _one_of(self, choices: Sequence[str]) -> str:
        if not choices:
            raise BadSchema("a JSON schema with an empty choice cannot be satisfied")
        return choices[0] if len(choices) == 1 else self._add(" | ".join(choices))

    def _reference(self, reference: Any, depth: int) -> str:
        """A schema may refer to itself, so its name is registered before it is expanded."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise BadSchema("a JSON schema can refer only to its own parts (#/$defs/...)")
        known = self._by_reference.get(reference)
        if known is not None:
            return known
        found = self._document
        for part in reference[1:].strip("/").split("/") if reference != "#" else []:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                raise BadSchema(f"the JSON schema refers to {reference[:80]!r}, which it does not have")
            found = found[key]
        name = self._by_reference[reference] = self._name()
        self.bodies[name] = self.of(found, depth + 1)
        if self.bodies[name] == name:
            raise BadSchema(f"{reference[:80]!r} of the JSON schema refers only to itself")
        return name

    def _array(self, schema: Mapping[str, Any], depth: int) -> str:
        item = self.of(schema.get("items", True), depth + 1)
        least, most = _bound(schema, "minItems") or 0, _bound(schema, "maxItems")
        if most == 0:
            return self._add('"[" ws "]"')
        more = "*" if least <= 1 and most is None else f"{{{max(0, least - 1)},{'' if most is None else most - 1}}}"
        items = f"{item} ({_COMMA} {item}){more}"
        return self._add(f'"[" ws {items if least else f"({items})?"} ws "]"')

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        properties = schema.get("properties") or {}
        if not isinstance(properties, Mapping):
            raise BadSchema("properties of a JSON schema must be an object")
        if not properties:
            return self._map(schema, depth)
        needed = schema.get("required") or []
        pairs = {
            name: self._add(f'{_literal(name)} ws ":" ws {self.of(part, depth + 1)}')
            for name, part in properties.items()
        }
        required = [pair for name, pair in pairs.items() if name in needed]
        optional = [pair for name, pair in pairs.items() if name not in needed]
        tails = self._tails(optional)
        if required:
            return self._add(f'"{{" ws {f" {_COMMA} ".join(required)} {tails[0]} ws "}}"')
        firsts = " | ".join(f"{pair} {rest}" for pair, rest in zip(optional, tails[1:], strict=True))
        return self._add(f'"{{" ws ({firsts})? ws "}}"')

    def _tails(self, optional: Sequence[str]) -> list[str]:
        """For each position in the list: what may follow, with each optional item present or not."""
        tails = ['""']
        for pair in reversed(optional):
            tails.append(self._add(f"({_COMMA} {pair})? {tails[-1]}"))
        return tails[::-1]

    def _map(self, schema: Mapping[str, Any], depth: int) -> str:
        values = schema.get("additionalProperties", True)
        if values is False:
            return self._add('"{" ws "}"')
        pair = f'string ws ":" ws {self.of(values, depth + 1)}'
        return self._add(f'"{{" ws ({pair} ({_COMMA} {pair})*)? ws "}}"')


def _listed(schema: Mapping[str, Any], word: str) -> Sequence[Any]:
    found = schema[word]
    if not isinstance(found, list):
        raise BadSchema(f"{word} of a JSON schema must be a list")
    return found


def _bound(schema: Mapping[str, Any], word: str) -> int | None:
    found = schema.get(word)
    usable = isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= ITEMS_MOST
    return found if usable else None


def _literal(value: Any) -> str:
    """The JSON of the value as a literal of the grammar, escaped once more."""
    text = json.dumps(value, ensure_ascii=False)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
