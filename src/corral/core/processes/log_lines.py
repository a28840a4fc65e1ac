"""Lines a backend wrote, made harmless. A backend is a stranger: its output may hold anything, in any amount."""

import unicodedata
from dataclasses import dataclass
from typing import Literal

LINE_CHARACTERS = 8192
_SHOWN_ALTHOUGH_FORMAT = "\u200d"  # joins emoji; without it family pictures fall apart

Stream = Literal["stdout", "stderr"]
_STREAMS: dict[str, Stream] = {"o": "stdout", "e": "stderr"}


@dataclass(frozen=True, slots=True)
class LogLine:
    at_ms: int
    stream: Stream
    text: str


def neutralise(raw: bytes) -> str:
    """Text that a terminal, a browser or a log file shows as it is.

    Escape sequences could repaint an operator's terminal and direction marks could reverse what is read; both become
    visible replacements. A line longer than the limit is cut and says by how much.
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
    if character.isprintable() or character == _SHOWN_ALTHOUGH_FORMAT:
        return True
    # Odd blanks (no-break, ideographic) are not printable by Python's count, but harmless.
    return unicodedata.category(character) == "Zs"


def parse_record(record: bytes) -> LogLine | None:
    """One line of a log file: `<milliseconds> <o|e> <text>`. None for a line cut by rotation or by a crash."""
    at, _, rest = record.partition(b" ")
    stream = _STREAMS.get(rest[:1].decode("latin-1"))
    if stream is None or rest[1:2] != b" " or not at.isdigit() or len(at) > 15:
        return None
    return LogLine(int(at), stream, neutralise(rest[2:]))
