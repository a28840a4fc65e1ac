"""The wire format, against bytes that Google's own library wrote and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.formats.localai_proto import MODEL_OPTIONS, PREDICT_OPTIONS, REPLY
from corral.formats.protobuf import BadMessage

PREDICT = {
    "Prompt": "é",
    "Seed": -1,
    "Temperature": 0.5,
    "StopPrompts": ["a", ""],
    "EmbeddingTokens": [1, -2, 300],
    "UseTokenizerTemplate": True,
    "Messages": [{"role": "user", "content": "hi"}],
    "Metadata": {"k": "v"},
}
PREDICT_BYTES = bytes.fromhex(
    "0a02c3a910ffffffffffffffffff014d0000003f6a01616a009a020d01feffffffffffffffff01ac02d80201"
    "e2020a0a047573657212026869a203060a016b120176"
)
ANSWER = {
    "message": b"\xff",
    "tokens": 3,
    "timing_token_generation": 1.5,
    "chat_deltas": [{"content": "x", "tool_calls": [{"index": 1, "id": "c", "name": "f", "arguments": "{}"}]}],
}
ANSWER_BYTES = bytes.fromhex("0a01ff100329000000000000f83f42110a01781a0c08011201631a016622027b7d")


def test_a_message_is_written_as_googles_library_writes_it() -> None:
    assert PREDICT_OPTIONS.encode(PREDICT) == PREDICT_BYTES
    assert REPLY.encode(ANSWER) == ANSWER_BYTES


def test_a_message_is_read_as_it_was_written() -> None:
    assert PREDICT_OPTIONS.decode(PREDICT_BYTES) == PREDICT
    assert REPLY.decode(ANSWER_BYTES) == ANSWER


def test_fields_of_a_later_version_are_skipped() -> None:
    later = b"\xfa\x7f\x03abc" + b"\xf8\x7f\x05" + b"\xfd\x7f\x00\x00\x00\x00" + b"\xf9\x7f" + b"\x00" * 8
    assert REPLY.decode(ANSWER_BYTES + later) == ANSWER


def test_numbers_of_a_list_may_come_one_by_one() -> None:
    assert PREDICT_OPTIONS.decode(b"\x98\x02\x01\x98\x02\x02") == {"EmbeddingTokens": [1, 2]}


def test_what_has_its_default_is_not_sent_and_nothing_is_lost_in_a_list() -> None:
    assert MODEL_OPTIONS.encode({"Model": "", "ContextSize": 0, "MMap": False, "Seed": None}) == b""
    assert MODEL_OPTIONS.decode(MODEL_OPTIONS.encode({"LoraScales": [0.0, 1.0]})) == {"LoraScales": [0.0, 1.0]}


@pytest.mark.parametrize(
    "values",
    [{"Nope": 1}, {"Seed": 1 << 31}, {"Seed": "x"}, {"Prompt": 5}, {"Temperature": "hot"}, {"Temperature": 1e300}],
)
def test_what_a_field_cannot_hold_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(BadMessage):
        PREDICT_OPTIONS.encode(values)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_be_read_or_refused(data: bytes) -> None:
    try:
        REPLY.decode(data)
    except BadMessage:
        return
