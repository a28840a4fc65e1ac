from hypothesis import given
from hypothesis import strategies as st

from corral.formats.http_chunks import are_whole_chunks

bodies = st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=6)


def coded(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


@given(bodies)
def test_whole_chunks_are_known(parts: list[bytes]) -> None:
    assert are_whole_chunks(coded(parts))


@given(bodies, st.data())
def test_a_part_of_a_chunk_is_not(parts: list[bytes], draw: st.DataObject) -> None:
    whole = coded(parts)
    ends = {len(coded(parts[:count])) for count in range(len(parts) + 1)}
    cut = draw.draw(st.integers(0, len(whole) - 1))
    assert are_whole_chunks(whole[:cut]) == (cut in ends and cut > 0)


def test_the_end_of_the_message_other_forms_and_other_bytes_are_not() -> None:
    for data in (
        b"",
        b"0\r\n\r\n",
        b"1\r\na\r\n0\r\n\r\n",
        b"1;x=y\r\na\r\n",
        b"+1\r\na\r\n",
        b" 1\r\na\r\n",
        b"0x1\r\na\r\n",
        b"1_0\r\n" + b"a" * 16 + b"\r\n",
        b"-1\r\na\r\n",
        b"g\r\na\r\n",
        b"1\r\nab\r\n",
        b"1\na\n",
        b"fffffffffff\r\na\r\n",
        "١\r\na\r\n".encode(),
    ):
        assert not are_whole_chunks(data), data
