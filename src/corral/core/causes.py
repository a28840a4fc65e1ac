"""Why something failed, in one line: for listings, and for whoever only asked for an answer."""

import re
from collections.abc import Sequence

LAST_OUTPUT = "Its last words:"
"""What a process wrote before it ended follows, line by line."""
LINE_MOST_CHARS = 300
_TELLING = re.compile(r"error|fail|fatal|cannot|could not|not found|no such|denied|unable|out of memory", re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last):"
# Of an absolute path all but its last part; what follows a scheme is an address.
_DIRECTORIES = re.compile(r"(?<![\w.:/])/(?:[^\s/'\":;,()]+/)+")


def brief_cause(text: str) -> str:
    """Of a process's last words only the most telling, and no directory of the machine it ran on."""
    head, mark, tail = text.partition(LAST_OUTPUT)
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    if not mark or not lines:
        return " ".join(text.split())
    said = _DIRECTORIES.sub("", _most_telling(lines))
    return f"{' '.join(head.split()).rstrip('.')}: {said[:LINE_MOST_CHARS]}"


def _most_telling(lines: Sequence[str]) -> str:
    """The first that names a problem: what follows it mostly follows from it. A traceback ends with its error."""
    before = lines[: lines.index(_TRACEBACK)] if _TRACEBACK in lines else lines
    return next((line for line in before if _TELLING.search(line)), lines[-1])
