"""Answers that leave out fields with their default value."""

from dataclasses import dataclass

import msgspec

from corral.frontend.http.json_response import MsgspecJson, SparseJson


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    name: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    count: int
    last: str | None
    inner: Inner | None = None
    items: list[Inner]


EMPTY = Outer(count=0, last=None, items=[Inner(name="a"), Inner(name="b", reason="full")])


def test_fields_with_their_default_are_left_out_at_every_depth() -> None:
    expected = {"count": 0, "last": None, "items": [{"name": "a"}, {"name": "b", "reason": "full"}]}
    assert msgspec.json.decode(SparseJson(EMPTY).body) == expected
    assert msgspec.json.decode(SparseJson({"key": [EMPTY]}).body) == {"key": [expected]}


def test_a_value_that_differs_from_the_default_stays() -> None:
    shown = msgspec.json.decode(SparseJson(Outer(count=1, last="x", inner=Inner(name="c"), items=[])).body)
    assert shown == {"count": 1, "last": "x", "inner": {"name": "c"}, "items": []}


def test_other_answers_keep_every_field() -> None:
    assert msgspec.json.decode(MsgspecJson(Inner(name="a")).body) == {"name": "a", "reason": None}
