"""The head of a GGUF file."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.formats.gguf import HEAD_BYTES, GgufFacts, NotGguf, read_gguf
from harness.tiny_model import tiny_weights


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def number(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


def head_of(*fields: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(fields)) + b"".join(fields)


NAME = text("general.architecture") + struct.pack("<I", 8) + text("llama")
GROUPED = (
    number("llama.block_count", 32),
    number("llama.context_length", 131_072),
    number("llama.embedding_length", 4096),
    number("llama.attention.head_count", 32),
    number("llama.attention.head_count_kv", 8),
)


def test_a_file_that_the_reference_writer_made(tmp_path: Path) -> None:
    head = tiny_weights(tmp_path).read_bytes()[:HEAD_BYTES]
    assert read_gguf(head) == GgufFacts(
        architecture="llama", layers=2, trained_context=2048, cache_bytes_per_token=2 * 4 * (16 + 16) * 2
    )


def test_grouped_heads_share_the_cache() -> None:
    facts = read_gguf(head_of(NAME, *GROUPED))
    assert facts == GgufFacts(architecture="llama", layers=32, trained_context=131_072, cache_bytes_per_token=128 << 10)


def test_own_lengths_and_heads_of_each_layer_count() -> None:
    heads = text("llama.attention.head_count_kv") + struct.pack("<IIQ4i", 9, 5, 4, 2, 0, 2, 0)
    fields = (number("llama.block_count", 4), number("llama.attention.head_count", 8), heads)
    lengths = (number("llama.attention.key_length", 256), number("llama.attention.value_length", 128))
    assert read_gguf(head_of(NAME, *fields, *lengths)).cache_bytes_per_token == 4 * (256 + 128) * 2


def test_a_model_without_attention_has_no_cache_per_token() -> None:
    assert read_gguf(head_of(NAME, number("llama.block_count", 24))) == GgufFacts(architecture="llama", layers=24)


def test_reading_ends_at_the_vocabulary() -> None:
    endless = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 1 << 60)
    assert read_gguf(head_of(NAME, GROUPED[0], endless, GROUPED[1])).trained_context is None


@pytest.mark.parametrize("head", [b"", b"GGUF", b"ELF" + bytes(40), head_of(version=1), head_of(version=9)])
def test_other_files_are_told_apart(head: bytes) -> None:
    with pytest.raises(NotGguf):
        read_gguf(head)


@given(st.binary(max_size=400), st.integers(min_value=0, max_value=300))
def test_damaged_heads_are_read_as_far_as_they_go(noise: bytes, cut: int) -> None:
    whole = head_of(NAME, *GROUPED)
    read_gguf(whole[: max(24, cut)] + noise)
