"""Reads the token usage that an answer reports."""

import re
from collections.abc import Iterable

from corral.core.access.token_estimate import estimate_prompt
from corral.formats.http_chunks import chunk_content
from corral.frontend.gateway.upstream.calls import ChunkRelay

# Each also matches the rest of its part, so that every part counts once. JSON has no zero bytes.
_IN = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})[^\0]*')
_OUT = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})[^\0]*')
_MARK = b'_tokens"'
PROMPT_MARK = b'"prompt_tokens"'
_PROMPT_MARKS = (PROMPT_MARK, b'"input_tokens"')
# llama.cpp sends these with its last event even if the client did not ask for usage. Prompt tokens that it had cached
# (`cache_n`) are part of this request all the same.
_TIMINGS = b'"timings"'
_TIMED_IN = re.compile(rb'"(?:cache|prompt)_n"\s*:\s*(\d{1,12})')
_TIMED_OUT = re.compile(rb'"predicted_n"\s*:\s*(\d{1,12})')
USAGE_BYTES = 256

ReportedUsage = bytes | tuple[int, int]
"""The part of an answer that holds its usage, not parsed yet; or the tokens themselves, in and out."""


def cut_usage(body: bytes) -> bytes:
    """The part of a complete answer that holds its usage; empty if there is none. In a text its quotes are escaped."""
    at = body.rfind(b'"usage"')
    return body[at : at + USAGE_BYTES] if at >= 0 else b""


def with_prompt(reported: ReportedUsage, body: bytes, *, is_form: bool) -> ReportedUsage:
    """`reported` with the tokens of the prompt, which are estimated if the answer does not tell them. `body`: of the
    request."""
    if isinstance(reported, tuple):
        return reported if reported[0] else (estimate_prompt(body, is_form=is_form), reported[1])
    if any(mark in reported for mark in _PROMPT_MARKS):
        return reported
    return estimate_prompt(body, is_form=is_form), read_usages((reported,))[1]


def read_usages(parts: Iterable[bytes]) -> tuple[int, int]:
    """The sums of tokens in and out. Reading many parts at once costs little more than reading one."""
    joined = b"\0".join(parts)
    return sum(map(int, _IN.findall(joined))), sum(map(int, _OUT.findall(joined)))


def stream_usage(relay: ChunkRelay, *, chunked: bool, complete: bool) -> tuple[int, int]:
    """Tokens in and out of a stream. Usage comes with its last chunks, if the client asked for it; otherwise each event
    counts as a token.

    `chunked`: pieces are in HTTP's chunked coding."""
    kept = map(chunk_content, relay.kept()) if chunked else relay.kept()
    last = b"".join(kept)
    found = cut_usage(last)
    if _MARK in found:
        return read_usages((found,))
    timed = last[last.rfind(_TIMINGS) :] if _TIMINGS in last else b""
    if out := _TIMED_OUT.search(timed):
        return sum(map(int, _TIMED_IN.findall(timed))), int(out[1])
    # The last event of a complete stream is `[DONE]`.
    return 0, max(0, relay.events - 1) if complete else relay.events
