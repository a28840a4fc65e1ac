"""Log lines of backends, made safe to show. The output of a backend is untrusted and unbounded."""

import unicodedata
from dataclasses import dataclass
from typing import Literal

LINE_CHARACTERS = 8192
_ZERO_WIDTH_JOINER = "\u200d"  # joins emoji: without it a family falls apart

Stream = Literal["stdout", "stderr"]
_STREAMS: dict[str, Stream] = {"o": "stdout", "e": "stderr"}


@dataclass(frozen=True, slots=True)
class LogLine:
    at_ms: int
    stream: Stream
    text: str


def neutralise(raw: bytes) -> str:
    """Text that is safe in a terminal, a browser and a log file.

    Escape sequences could repaint a terminal and direction marks could reverse text; both are replaced visibly. A line
    beyond the limit is cut, and says by how much.
    """
    cut = len(raw) - LINE_CHARACTERS * 4
    text = raw[: LINE_CHARACTERS * 4].decode(errors="replace").expandtabs(8)
    if len(text) > LINE_CHARACTERS:
        cut = max(cut, 0) + len(text) - LINE_CHARACTERS
        text = text[:LINE_CHARACTERS]
    if not text.isprintable():
        text = "".join(character if _harmless(character) else "\N{REPLACEMENT CHARACTER}" for character in text)
    return f"{text} [{cut} more cut]" if cut > 0 else text


def _harmless(character: str) -> bool:
    if character.isprintable() or character == _ZERO_WIDTH_JOINER:
        return True
    # Unusual spaces (no-break, ideographic) are harmless, though not printable by Python's definition.
    return unicodedata.category(character) == "Zs"


def parse_record(record: bytes) -> LogLine | None:
    """One line of a log file: `<milliseconds> <o|e> <text>`. None for a line cut by rotation or by a crash."""
    at, _, rest = record.partition(b" ")
    stream = _STREAMS.get(rest[:1].decode("latin-1"))
    if stream is None or rest[1:2] != b" " or not at.isdigit() or len(at) > 15:
        return None
    return LogLine(int(at), stream, neutralise(rest[2:]))
