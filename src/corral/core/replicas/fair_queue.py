"""A fair queue: clients share its output by cost, and classes of clients by weight.

Within a class, each client has a line of its own. The lines take turns as in deficit round robin with the smallest
quantum there is: a line gives its first item when it has saved the item's cost, and all lines save at the same pace.
Thus one long item counts as many short ones. Between classes, the one that has got least for its weight is next, so a
class with a small weight gets little, but never nothing.

The cost of an item is an estimate. When its real cost is known, `correct` charges its client and its class the
difference: they get their next turns later, or earlier. What is charged in this way is bounded."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

COST = 1000
"""Of an item for which none is given."""
CARRY_MAX = 32_768
"""How far corrections may put a client, or a class, behind or ahead of the others. Nobody is kept waiting for longer
than it takes to give each of the others this much, and nobody gets more than this in advance."""
CARRIES_MAX = 1024


@dataclass(slots=True)
class _Line(Generic[T]):
    items: deque[tuple[T, int]] = field(default_factory=deque)
    """With their costs."""
    cost: int = 0
    """Of all of them."""
    passed: float = 0.0
    """What its class had saved for each line when the line's last item was taken, or when the line began."""

    @property
    def due(self) -> float:
        """What the class must have saved for each line before its first item is taken."""
        return self.passed + self.items[0][1]


class _Class(Generic[T]):
    """Clients of one weight."""

    __slots__ = ("_carried", "lines", "passed", "saved", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.lines: OrderedDict[str, _Line[T]] = OrderedDict()
        self.saved = 0.0
        """By each line, since the beginning."""
        self.passed = 0.0
        """The cost it has got, divided by its weight."""
        self._carried: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Of clients without a line: what corrections cost them (less than 0: what they got back), and what the class
        had saved for each line then."""

    def line(self, client: str) -> _Line[T]:
        line = self.lines.get(client)
        if line is None:
            line = self.lines[client] = _Line(passed=self.saved + self._take_carried(client))
        return line

    def _take_carried(self, client: str) -> float:
        """It loses its meaning as the others are served: a line that had waited would have saved as much."""
        cost, saved = self._carried.pop(client, (0.0, 0.0))
        passed = self.saved - saved
        return max(0.0, cost - passed) if cost > 0 else min(0.0, cost + passed)

    def _carry(self, client: str, cost: float) -> None:
        if cost:
            self._carried[client] = cost, self.saved
            if len(self._carried) > CARRIES_MAX:
                self._carried.popitem(last=False)

    def correct(self, client: str, change: int) -> None:
        line = self.lines.get(client)
        if line is not None:
            line.passed = _corrected(line.passed, change, around=self.saved, within=CARRY_MAX)
        else:
            self._carry(client, _corrected(self._take_carried(client), change, around=0.0, within=CARRY_MAX))

    def take(self) -> tuple[T, int]:
        client, line = min(self.lines.items(), key=lambda each: each[1].due)
        line.passed = line.due
        # Removing the first item of a line makes it due earlier, and no line may lose what it has saved.
        self.saved = max(self.saved, line.passed)
        item, cost = line.items.popleft()
        line.cost -= cost
        if line.items:
            self.lines.move_to_end(client)
        else:
            del self.lines[client]
        return item, cost

    def remove(self, client: str, item: T) -> bool:
        line = self.lines.get(client)
        if line is None:
            return False
        for at, (each, cost) in enumerate(line.items):
            if each is item or each == item:
                del line.items[at]
                line.cost -= cost
                if not line.items:
                    del self.lines[client]
                    self._carry(client, max(0.0, line.passed - self.saved))
                return True
        return False


class FairQueue(Generic[T]):
    def __init__(self) -> None:
        self._classes: dict[int, _Class[T]] = {}
        self._passed = 0.0
        """Of the class that was last served: a class that was empty starts here."""
        self.length = 0
        """The same as `len`, without a call: it is read for every request."""

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[T]:
        for each in self._classes.values():
            for line in each.lines.values():
                for item, _ in line.items:
                    yield item

    def put(self, client: str, item: T, *, cost: int = COST, weight: int = 1) -> int:
        """Returns about how many items will be taken before it, if no other is added."""
        cost = max(1, cost)
        own = self._classes.get(weight)
        if own is None:
            own = self._classes[weight] = _Class(weight)
        if not own.lines:
            own.passed = max(own.passed, self._passed)
        line = own.line(client)
        line.items.append((item, cost))
        line.cost += cost
        self.length += 1
        return self._count_ahead(own, line)

    def _count_ahead(self, own: _Class[T], line: _Line[T]) -> int:
        ahead = len(line.items) - 1
        in_class = line.cost
        for other in own.lines.values():
            if other is not line:
                count, cost = _count_within(other, line.cost)
                ahead += count
                in_class += cost
        for each in self._classes.values():
            if each is not own and each.lines:
                share = in_class * each.weight / own.weight / len(each.lines)
                ahead += sum(_count_within(other, share)[0] for other in each.lines.values())
        return ahead

    def take(self) -> T | None:
        """The next item."""
        if not self.length:
            return None
        following = min((each for each in self._classes.values() if each.lines), key=lambda each: each.passed)
        self._passed = following.passed
        item, cost = following.take()
        following.passed += cost / following.weight
        self.length -= 1
        return item

    def correct(self, client: str, change: int, *, weight: int = 1) -> None:
        """An item that was taken costs `change` more than its client paid, or less. What it has already got, or paid,
        counts when its next items are due."""
        own = self._classes.get(weight)
        if own is not None and change:
            own.correct(client, change)
            own.passed = _corrected(own.passed, change / weight, around=self._passed, within=CARRY_MAX / weight)

    def find_surplus(
        self, client: str, *, weight: int = 1, may_leave: Callable[[T], bool] = lambda _: True
    ) -> tuple[str, T] | None:
        """Whose item makes way for one of `client` when there is no place left, and the item: the newest that may leave
        of the line that is longest for its weight. None where that line would then be shorter than the client's own."""
        own = self._classes.get(weight)
        line = own.lines.get(client) if own is not None else None
        wanted = ((len(line.items) if line is not None else 0) + 1) / weight
        lines = (
            ((len(each.items) - 1) / one.weight, name, each)
            for one in self._classes.values()
            for name, each in one.lines.items()
        )
        longer = sorted((found for found in lines if found[0] >= wanted), key=lambda found: found[0], reverse=True)
        for _, name, each in longer:
            newest = next((item for item, _ in reversed(each.items) if may_leave(item)), None)
            if newest is not None:
                return name, newest
        return None

    def remove(self, client: str, item: T) -> bool:
        """False when the item is not in the queue."""
        if any(each.remove(client, item) for each in self._classes.values()):
            self.length -= 1
            return True
        return False


def _corrected(passed: float, change: float, *, around: float, within: float) -> float:
    """`passed` after a correction, which leads no further from `around` than `within`."""
    if change > 0:
        return min(passed + change, max(passed, around + within))
    return max(passed + change, min(passed, around - within))


def _count_within(line: _Line[T], most: float) -> tuple[int, int]:
    """How many of its first items cost at most `most` together, and what they cost."""
    if line.cost <= most:
        return len(line.items), line.cost
    total = count = 0
    for _, cost in line.items:
        if total + cost > most:
            break
        total += cost
        count += 1
    return count, total
