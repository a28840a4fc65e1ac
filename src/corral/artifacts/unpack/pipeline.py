"""Stages that run in parallel, each in its own thread, with a bounded number of chunks between them."""

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

from corral.artifacts.cancel import CancelToken

Item = TypeVar("Item")

POLL_S = 0.25


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def run_ahead(items: Iterable[Item], *, depth: int, cancel: CancelToken, name: str) -> Generator[Item, None, None]:
    """Produces `items` in a thread, at most `depth` ahead of the consumer. Leaving the iteration, by its end, an
    error or `close`, returns only when the producer has stopped."""
    # Two queues without a bound of their own: a bounded one is written in Python and costs ten times as much.
    handed: queue.SimpleQueue[Item | _End] = queue.SimpleQueue()
    places: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(depth):
        places.put(None)
    left = threading.Event()

    def hand_over(item: Item | _End) -> bool:
        while not left.is_set():
            try:
                places.get(timeout=POLL_S)
            except queue.Empty:
                continue
            handed.put(item)
            return True
        return False

    def produce() -> None:
        iterator = iter(items)
        try:
            for item in iterator:
                if not hand_over(item):
                    break
            end = _End(None)
        except BaseException as error:  # noqa: BLE001  it is raised again in the consumer
            end = _End(error)
        finally:
            if isinstance(iterator, Generator):
                iterator.close()
        hand_over(end)

    producer = threading.Thread(target=produce, name=name, daemon=True)
    producer.start()
    try:
        yield from _handed(handed, places, cancel)
    finally:
        left.set()
        producer.join()


def _handed(
    handed: "queue.SimpleQueue[Item | _End]", places: "queue.SimpleQueue[None]", cancel: CancelToken
) -> Iterator[Item]:
    while True:
        try:
            item = handed.get(timeout=POLL_S)
        except queue.Empty:
            cancel.check()
            continue
        if isinstance(item, _End):
            if item.error is not None:
                raise item.error
            return
        places.put(None)
        yield item
