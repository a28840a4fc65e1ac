"""What changed between two revisions of a model's configuration, field by field."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldChange:
    field: str
    """The path of the field, such as `parameters.model`."""
    before: str | None
    """As JSON; None if the field was not there."""
    after: str | None
    """As JSON; None if the field is gone."""


def find_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[FieldChange]:
    """In the order of the fields' names. Comments and the order of fields are no changes."""
    return list(_changes(before, after, ""))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], within: str) -> Iterator[FieldChange]:
    for key in sorted({*before, *after}):
        one, other, where = before.get(key), after.get(key), f"{within}{key}"
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _changes(one, other, f"{where}.")
            continue
        shown = _show(before, key), _show(after, key)
        if shown[0] != shown[1]:
            yield FieldChange(where, *shown)


def _show(document: Mapping[str, Any], key: str) -> str | None:
    """JSON tells 1 from true and from "1"."""
    return json.dumps(document[key], ensure_ascii=False, sort_keys=True) if key in document else None
