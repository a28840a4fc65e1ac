"""Waiting in line, fairly: each caller has a line of its own, and the lines take turns."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        self.length = 0
        """The same as `len`, for those who ask often."""

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[T]:
        for line in self._lines.values():
            yield from line

    def put(self, caller: str, item: T) -> int:
        """The number of items that will come before it, if nobody else joins."""
        line = self._lines.setdefault(caller, deque())
        line.append(item)
        self.length += 1
        depth = len(line)
        return sum(min(len(other), depth) for other in self._lines.values()) - 1

    def take(self) -> T | None:
        """The next one; its caller's line then goes to the end."""
        if not self._lines:
            return None
        caller, line = next(iter(self._lines.items()))
        item = line.popleft()
        self.length -= 1
        if line:
            self._lines.move_to_end(caller)
        else:
            del self._lines[caller]
        return item

    def remove(self, caller: str, item: T) -> bool:
        """It waits no longer. False when it had left already."""
        line = self._lines.get(caller)
        if line is None or item not in line:
            return False
        line.remove(item)
        self.length -= 1
        if not line:
            del self._lines[caller]
        return True
