import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.processes.log_lines import LINE_CHARACTERS, LogLine, neutralise, parse_record


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        pytest.param(b"loading 42%", "loading 42%", id="plain-text-stays"),
        pytest.param("größe 模型 👩‍👩‍👧".encode(), "größe 模型 👩‍👩‍👧", id="all-scripts-and-joined-emoji-stay"),
        pytest.param(
            b"\x1b[2J\x1b]0;owned\x07", "\ufffd[2J\ufffd]0;owned\ufffd", id="escape-sequences-lose-their-power"
        ),
        pytest.param("safe\u202etxt.exe".encode(), "safe\ufffdtxt.exe", id="direction-marks-are-shown"),
        pytest.param("a\x85b\x9bc".encode(), "a\ufffdb\ufffdc", id="the-second-set-of-controls-too"),
        pytest.param(b"\xff\xfe broken", "\ufffd\ufffd broken", id="invalid-utf-8-is-replaced"),
        pytest.param(b"a\tb", "a       b", id="tabs-become-blanks"),
        pytest.param("a\u00a0b\u3000c".encode(), "a\u00a0b\u3000c", id="odd-blanks-stay"),
        pytest.param(b"one\x00two\x0athree", "one\ufffdtwo\ufffdthree", id="no-line-end-inside-a-line"),
    ],
)
def test_neutralise(raw: bytes, text: str) -> None:
    assert neutralise(raw) == text


def test_a_long_line_is_cut_and_says_so() -> None:
    text = neutralise(b"x" * 100_000)
    assert text.startswith("x" * LINE_CHARACTERS + " [")
    assert text.endswith("more cut]")
    assert len(text) < LINE_CHARACTERS + 40


@given(st.binary(max_size=400))
def test_no_bytes_make_a_line_that_is_not_harmless(raw: bytes) -> None:
    text = neutralise(raw)
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text)
    text.encode()  # no lone surrogate either


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (b"1700000000123 o hello", LogLine(1700000000123, "stdout", "hello")),
        (b"1700000000123 e ", LogLine(1700000000123, "stderr", "")),
        (b"0000123 x hello", None),
        (b"half a record", None),
        (b"", None),
        (b"99999999999999999999 o far away", None),
    ],
)
def test_parse_record(record: bytes, line: LogLine | None) -> None:
    assert parse_record(record) == line
