"""What a request may do to a file that is partly or wholly there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.errors import InvalidInput
from corral.core.processes.uploads import (
    AlreadyThere,
    ContentRange,
    OtherFile,
    OtherOffset,
    Stored,
    Write,
    check_sha256,
    parse_content_range,
    plan_upload,
)

A, B = "a" * 64, "b" * 64
NOTHING = Stored(size=None)
HALF = Stored(size=50, target=A)
WHOLE = Stored(size=100, sha256=A)
UNKNOWN = Stored(size=100)


@pytest.mark.parametrize(
    ("start", "stored", "sha256", "expected"),
    [
        pytest.param(0, NOTHING, A, Write(0), id="a-new-file-begins"),
        pytest.param(0, NOTHING, None, Write(0), id="a-new-file-needs-no-hash"),
        pytest.param(50, HALF, A, Write(50), id="a-partial-file-goes-on"),
        pytest.param(0, HALF, A, OtherOffset(50), id="the-same-file-is-not-started-over"),
        pytest.param(0, HALF, B, Write(0), id="another-file-replaces-a-partial-one"),
        pytest.param(0, HALF, None, Write(0), id="without-a-hash-nothing-is-trusted"),
        pytest.param(50, HALF, B, OtherFile(drop=True), id="another-file-is-not-appended"),
        pytest.param(50, HALF, None, OtherFile(drop=True), id="nor-is-one-without-a-hash"),
        pytest.param(40, HALF, A, OtherOffset(50), id="an-overlap-is-told-the-size"),
        pytest.param(60, HALF, A, OtherOffset(50), id="a-gap-is-told-the-size"),
        pytest.param(0, WHOLE, A, OtherOffset(100), id="a-complete-file-is-left-alone"),
        pytest.param(0, WHOLE, B, Write(0), id="a-complete-file-is-replaced-by-another"),
        pytest.param(50, WHOLE, A, AlreadyThere(), id="a-last-part-sent-twice-is-done-twice"),
        pytest.param(50, WHOLE, B, OtherFile(drop=False), id="a-part-of-another-file-leaves-a-complete-one"),
        pytest.param(50, UNKNOWN, A, OtherFile(drop=False), id="and-one-whose-hash-nobody-noted"),
    ],
)
def test_plan_upload(start: int, stored: Stored, sha256: str | None, expected: object) -> None:
    assert plan_upload(ContentRange(start, 99, 100), stored, sha256) == expected


@given(st.text(max_size=40))
def test_any_text_is_a_range_inside_its_file_or_refused(text: str) -> None:
    try:
        found = parse_content_range(text)
    except InvalidInput:
        return
    assert 0 <= found.start <= found.end < found.total


def test_a_hash_is_64_hex_digits_or_absent() -> None:
    assert check_sha256("A" * 64) == A
    assert check_sha256(None) is None
    assert check_sha256("") is None
    with pytest.raises(InvalidInput):
        check_sha256("abc")
