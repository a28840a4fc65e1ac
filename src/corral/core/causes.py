"""Summarises failures in one line, for listings and error responses."""

import re
from collections.abc import Iterable, Sequence

LAST_OUTPUT = "Its last output:"
"""The heading in an error text that precedes a process's last lines of output."""
LINE_MOST_CHARS = 300
_PROBLEM = re.compile(r"error|fail|fatal|cannot|could not|not found|no such|denied|unable|out of memory", re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'File "[^"]+", line \d+')
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
"""The last line of a traceback. Errors with other names end it where the output ends."""
# The directories of an absolute path. A path after a scheme belongs to an address and stays.
_DIRECTORIES = re.compile(r"(?<![\w.:/])/(?:[^\s/'\":;,()]+/)+")


def brief_cause(text: str) -> str:
    """The text with only the most significant line of the process's output, and without directories of its machine."""
    head, mark, tail = text.partition(LAST_OUTPUT)
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    if not mark or not lines:
        return " ".join(text.split())
    line = _DIRECTORIES.sub("", _most_significant(lines))
    return f"{' '.join(head.split()).rstrip('.')}: {line[:LINE_MOST_CHARS]}"


def join_reasons(reasons: Iterable[str]) -> str:
    """Each reason once, those that say something. None ends with a full stop where another one follows."""
    told = {without_stop(reason): reason for reason in reasons if reason}
    *first, last = told.items() or [("", "")]
    return "; ".join([*(bare for bare, _ in first), last[1]])


def without_stop(reason: str) -> str:
    """For a reason that a sentence goes on after."""
    return reason if reason.endswith("..") else reason.removesuffix(".")


def _most_significant(lines: Sequence[str]) -> str:
    """The first line that names a problem, as later ones mostly follow from it. A traceback ends with its error."""
    frames = [at for at, line in enumerate(lines) if line == _TRACEBACK or _FRAME.match(line)]
    if not frames:
        return next(filter(_PROBLEM.search, lines), lines[-1])
    end = next((at + 1 for at, line in enumerate(lines) if at > frames[-1] and _RAISED.match(line)), len(lines))
    before, after = lines[: frames[0]], lines[end:]
    # Where the process wrote all else only when it ended, the traceback comes first, and its beginning may be cut off.
    told = [*before, *after] if len(after) > end else before
    return next(filter(_PROBLEM.search, told), lines[end - 1])
