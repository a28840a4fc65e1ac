"""One lock per name, which exists only while it is held or awaited."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class NamedLocks:
    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}

    def is_held(self, name: Hashable) -> bool:
        entry = self._entries.get(name)
        return entry is not None and entry.lock.locked()

    @asynccontextmanager
    async def held(self, name: Hashable) -> AsyncIterator[None]:
        entry = self._entries.setdefault(name, _Entry())
        # Counted: a lock that was just released is not locked, although a waiter will acquire it.
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if entry.users == 0:
                del self._entries[name]
