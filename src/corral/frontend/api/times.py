"""Times as the API shows them: the store counts milliseconds, answers have UTC dates."""

from datetime import UTC, datetime
from typing import overload


@overload
def time_of(at_ms: int) -> datetime: ...
@overload
def time_of(at_ms: int | None) -> datetime | None: ...
def time_of(at_ms: int | None) -> datetime | None:
    return datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms is not None else None
