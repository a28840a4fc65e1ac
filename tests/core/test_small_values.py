"""Durations, sizes, budgets and delays, as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.backoff import PROCESS_RESTARTS
from corral.core.durations import format_age, format_duration, parse_duration_s
from corral.core.errors import InvalidInput
from corral.core.sizes import format_bytes, parse_budget_bytes, parse_size_bytes, read_size_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("15m", 900), ("1h30m", 5400), ("250ms", 0.25), ("2.5", 2.5), ("1d", 86400), (" 10s ", 10)],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 minutes", "10x", "1h 30m", "--5", "1e"])
def test_what_is_not_a_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="15m"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(7776000.0, "90d"), (3600.0, "1h"), (90.0, "90s"), (0.25, "0.25s"), (10.0, "10s"), (0, "0s")]
)
def test_format_duration_is_exact(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59.9, "59s"), (60, "1m"), (7200, "2h"), (2e5, "2d")])
def test_format_age(seconds: float, text: str) -> None:
    assert format_age(seconds) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80%", int(24 * GIB * 0.8)),
        ("0.5", 12 * GIB),
        ("12GB", 12 * 10**9),
        ("12GiB", 12 * GIB),
        ("1048576", 1 << 20),
        ("99GiB", 24 * GIB),
        ("100%", 24 * GIB),
    ],
)
def test_parse_budget(text: str, expected: int) -> None:
    assert parse_budget_bytes(text, total_bytes=24 * GIB) == expected


@pytest.mark.parametrize("text", ["", "lots", "-5GB", "120%", "0%", "0", "5 parsecs", "%"])
def test_a_budget_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="memory"):
        parse_budget_bytes(text, total_bytes=24 * GIB)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (432013312, "412.0 MiB"), (GIB << 12, "4.0 TiB")],
)
def test_format_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(failures=st.integers(-3, 10_000), draw=st.floats(0, 1))
def test_a_restart_is_never_at_once_and_never_later_than_the_cap(failures: int, draw: float) -> None:
    assert 0.25 <= PROCESS_RESTARTS.delay_s(failures, draw) <= 30.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("94MB", 94_000_000),
        ("94MiB", 94 << 20),
        ("1.5 GiB", 3 << 29),
        ("4G", 4_000_000_000),
        ("4gib", 4 << 30),
        (" 12 ", 12),
        ("about 4 GB", None),
        ("4 XB", None),
        ("-1", None),
        ("", None),
    ],
)
def test_sizes_as_people_and_galleries_write_them(text: str, expected: int | None) -> None:
    assert read_size_bytes(text) == expected
    if expected is not None:
        assert parse_size_bytes(text) == expected
        return
    with pytest.raises(InvalidInput, match="write for example 94MiB"):
        parse_size_bytes(text)
