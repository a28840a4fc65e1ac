"""How many tokens a request will probably use, before a replica has counted them."""

BYTES_PER_TOKEN = 4
EMBEDDED_TOKENS = 1000
"""An image or a recording within a JSON request; its bytes say nothing about its tokens."""
OUTPUT_TOKENS = 256
"""The length of an answer, while nothing is known about the key's usual ones."""
_EMBEDDED = b";base64,"
_ONLY_TEXT_BYTES = 64 << 10
"""Shorter bodies are not searched: that would cost more than all the rest, for every long prompt."""


def estimate_prompt(body: bytes, *, is_form: bool = False) -> int:
    """The tokens of a request's prompt. A form holds a recording or an image, which are not counted in tokens."""
    if is_form:
        return 0
    size = len(body)
    embedded = 0
    if size > _ONLY_TEXT_BYTES:
        start = body.find(_EMBEDDED)
        while start >= 0:
            end = body.find(b'"', start)
            end = len(body) if end < 0 else end
            embedded += 1
            size -= end - start
            start = body.find(_EMBEDDED, end)
    return size // BYTES_PER_TOKEN + embedded * EMBEDDED_TOKENS


def estimate_output(stated: object, usual: float = OUTPUT_TOKENS) -> int:
    """The tokens of its answer. `stated`: the most that the client wants, in whatever form it sent it. `usual`: the
    average of the key's answers."""
    expected = int(usual)
    return min(stated, expected) if isinstance(stated, int) and stated > 0 else expected


def estimate_tokens(body: bytes, is_form: bool, stated: object, usual: float) -> int:
    """The sum of both, without further calls where that is possible: it runs for every request of a limited key."""
    size = len(body)
    if is_form or size > _ONLY_TEXT_BYTES:
        return estimate_prompt(body, is_form=is_form) + estimate_output(stated, usual)
    expected = stated if stated.__class__ is int and 0 < stated < usual else int(usual)
    return size // BYTES_PER_TOKEN + expected
