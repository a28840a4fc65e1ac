"""Limits in force, estimates of tokens, and days and months of budgets."""

from typing import Any

import pytest

from corral.core.access.calendar import DAY_MS, ends_in_ms, month_days
from corral.core.access.key_limits import KeyLimits, LimitsInForce, Priority, limits_in_force
from corral.core.access.token_estimate import estimate_output, estimate_prompt


@pytest.mark.parametrize(
    ("own", "default", "expected"),
    [
        pytest.param({}, {}, {}, id="nothing-is-limited"),
        pytest.param({"tokens_per_day": 5}, {}, {"tokens_per_day": 5}, id="its-own"),
        pytest.param({}, {"tokens_per_day": 7}, {"tokens_per_day": 7}, id="the-default"),
        pytest.param({"tokens_per_day": 5}, {"tokens_per_day": 7}, {"tokens_per_day": 5}, id="its-own-first"),
        pytest.param({"tokens_per_day": 0}, {"tokens_per_day": 7}, {}, id="none-in-spite-of-a-default"),
        pytest.param({}, {"priority": Priority.LOW}, {"priority": Priority.LOW}, id="a-default-priority"),
    ],
)
def test_limits_in_force(own: dict[str, Any], default: dict[str, Any], expected: dict[str, Any]) -> None:
    found = limits_in_force(KeyLimits(**own), KeyLimits(**default))
    assert found == LimitsInForce(**expected)
    assert found.has_any == ("tokens_per_day" in expected)


@pytest.mark.parametrize(
    ("body", "is_form", "expected"),
    [
        pytest.param(b"x" * 400, False, 100, id="text"),
        pytest.param(b"x" * 400, True, 0, id="a-recording"),
        pytest.param(b'{"url": "data:image/png;base64,' + b"A" * 100_000 + b'"}', False, 1006, id="an-image"),
        pytest.param(
            b'"a;base64,' + b"A" * 50_000 + b'" "b;base64,' + b"B" * 50_000, False, 2001, id="two-of-them-cut"
        ),
    ],
)
def test_the_tokens_of_a_prompt(body: bytes, is_form: bool, expected: int) -> None:
    assert estimate_prompt(body, is_form=is_form) == expected


@pytest.mark.parametrize(
    ("stated", "expected"), [(None, 300), (10, 10), (100_000, 300), (-1, 300), ("many", 300), (1.5, 300), (0, 300)]
)
def test_the_tokens_of_an_answer(stated: object, expected: int) -> None:
    assert estimate_output(stated, 300.9) == expected


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        pytest.param(0, (0, 31), id="the-first-day-of-1970"),
        pytest.param(30, (0, 31), id="the-last-of-a-month"),
        pytest.param(31, (31, 59), id="the-first-of-a-month"),
        pytest.param(19_782, (19_754, 19_783), id="the-29th-of-february-2024"),
        pytest.param(20_088, (20_058, 20_089), id="the-last-of-a-year"),
    ],
)
def test_months(day: int, expected: tuple[int, int]) -> None:
    assert month_days(day) == expected


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [
        pytest.param(0, (DAY_MS, 31 * DAY_MS), id="a-new-day"),
        pytest.param(31 * DAY_MS - 1, (1, 1), id="the-last-millisecond-of-a-month"),
    ],
)
def test_when_periods_end(now_ms: int, expected: tuple[int, int]) -> None:
    assert ends_in_ms(now_ms) == expected
