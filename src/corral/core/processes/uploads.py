"""Resumable uploads in the protocol of LocalAI's file server: what one request does to the stored bytes."""

import re
from dataclasses import dataclass

from corral.core.errors import InvalidInput

_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class ContentRange:
    start: int
    end: int
    """The last byte, inclusive."""
    total: int

    @property
    def length(self) -> int:
        return self.end - self.start + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The stored file; size None means that there is none."""

    size: int | None
    sha256: str | None = None
    """Digest of a complete file."""
    target: str | None = None
    """Digest that a partial file will have when it is complete."""


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    """0 discards the stored bytes."""


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """The whole file is stored: the response to its last part was lost, and is sent again."""


@dataclass(frozen=True, slots=True)
class OtherFile:
    """The stored bytes belong to another file; the sender starts over."""

    drop: bool
    """Discard an incomplete file. A complete one stays: it may be in use."""


@dataclass(frozen=True, slots=True)
class OtherOffset:
    size: int


def parse_content_range(text: str) -> ContentRange:
    match = _RANGE.match(text)
    if match is None:
        raise InvalidInput(f"{text[:80]!r} is not a Content-Range")
    found = ContentRange(*map(int, match.groups()))
    if found.end < found.start or found.total < found.end + 1:
        raise InvalidInput(f"{text[:80]!r} is a range beyond the end of the file")
    return found


def check_sha256(text: str | None) -> str | None:
    if text is None or text == "":
        return None
    if not _SHA256.match(text.lower()):
        raise InvalidInput("X-Content-SHA256 is not a SHA-256")
    return text.lower()


UploadPlan = Write | AlreadyThere | OtherFile | OtherOffset


def plan_upload(requested: ContentRange, stored: Stored, sha256: str | None) -> UploadPlan:
    size = stored.size or 0
    if requested.start > 0 and sha256 is not None and sha256 == stored.sha256 and requested.total == size:
        return AlreadyThere()
    if requested.start == 0 and size > 0 and (sha256 is None or sha256 not in (stored.sha256, stored.target)):
        return Write(0)
    if requested.start > 0 and sha256 != stored.target:
        return OtherFile(drop=stored.target is not None)
    if requested.start != size:
        return OtherOffset(size)
    return Write(size)
