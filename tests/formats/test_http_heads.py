from hypothesis import given
from hypothesis import strategies as st

from corral.formats.http_heads import MISSES_MOST, RepeatedHead

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nAccept: */*\r\n\r\n"


def message(body: bytes, head: bytes = HEAD) -> bytes:
    return head % len(body) + body


def learnt(body: bytes = b"hello", head: bytes = HEAD) -> RepeatedHead[str]:
    repeated: RepeatedHead[str] = RepeatedHead()
    repeated.learn(message(body, head), "meaning")
    return repeated


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_same_head_gives_the_body_whatever_its_length(first: bytes, second: bytes) -> None:
    assert learnt(first).body_of(message(second)) == second


@given(st.binary(max_size=50), st.integers(0, 120), st.binary(min_size=1, max_size=3))
def test_bytes_changed_anywhere_in_the_head_are_not_recognised_as_another_body(
    body: bytes, at: int, changed: bytes
) -> None:
    whole = message(body)
    at %= len(whole) - len(body)
    other = whole[:at] + changed + whole[at + len(changed) :]
    found = learnt().body_of(other)
    # Recognised only if nothing but digits of the length changed, and then they tell the truth.
    assert found is None or message(found) == other


@given(st.binary(max_size=50), st.binary(min_size=1, max_size=50))
def test_more_or_less_than_one_message_is_not_recognised(body: bytes, more: bytes) -> None:
    whole = message(body)
    assert learnt().body_of(whole + more) is None
    assert learnt().body_of(whole[:-1]) is None


def test_two_lengths_none_or_a_wrong_one_are_not_remembered() -> None:
    for head in (
        b"A\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n",
        b"A\r\nHost: x\r\n\r\n",
        b"A\r\nContent-Length: 6\r\n\r\n",
        b"A\r\nContent-Length: +5\r\n\r\n",
    ):
        repeated: RepeatedHead[str] = RepeatedHead()
        repeated.learn(head + b"hello", "meaning")
        assert repeated.body_of(head + b"hello") is None


def test_heads_that_never_repeat_are_dropped() -> None:
    repeated: RepeatedHead[str] = RepeatedHead()
    for number in range(MISSES_MOST + 5):
        repeated.learn(message(b"x", b"A%d\r\nContent-Length: %%d\r\n\r\n" % number), "meaning")
    last = message(b"x", b"B\r\nContent-Length: %d\r\n\r\n")
    repeated.learn(last, "meaning")
    assert repeated.body_of(last) is None
