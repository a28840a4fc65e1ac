"""A fair queue: each client has a queue of its own, and the queues take turns."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()
        self.length = 0
        """The same as `len`, without a call: it is read for every request."""

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[T]:
        for queue in self._queues.values():
            yield from queue

    def put(self, client: str, item: T) -> int:
        """Returns how many items will be taken before it, if no other is added."""
        queue = self._queues.setdefault(client, deque())
        queue.append(item)
        self.length += 1
        depth = len(queue)
        return sum(min(len(other), depth) for other in self._queues.values()) - 1

    def take(self) -> T | None:
        """The next item. Its client's queue goes to the end."""
        if not self._queues:
            return None
        client, queue = next(iter(self._queues.items()))
        item = queue.popleft()
        self.length -= 1
        if queue:
            self._queues.move_to_end(client)
        else:
            del self._queues[client]
        return item

    def remove(self, client: str, item: T) -> bool:
        """False when the item is not in the queue."""
        queue = self._queues.get(client)
        if queue is None or item not in queue:
            return False
        queue.remove(item)
        self.length -= 1
        if not queue:
            del self._queues[client]
        return True
