"""Chunks of streams that are under way, until the loop has looked at everything that came.

Reading a chunk is quick, writing it is not. Were each written as it is read, a new request, or the first word of an
answer, would stand behind all chunks that came before it. So chunks wait for the end of the loop's pass, and then go
out a few dozen at a time, with a look at what came in between. A stream that is late gets all its chunks at once."""

import asyncio
from collections import deque

from corral.frontend.gateway.upstream.calls import ChunkRelay

AT_ONCE = 64
# Of many that wait, at least this part goes out between two looks: nobody waits for more than a few of them.
PARTS = 4


class Outbox:
    """One for each loop."""

    def __init__(self) -> None:
        self._waiting: deque[ChunkRelay] = deque()

    def post(self, relay: ChunkRelay) -> None:
        """Once for what is late on a relay; more may be added to it until it is flushed."""
        waiting = self._waiting
        if not waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        waiting.append(relay)

    def _flush(self) -> None:
        waiting = self._waiting
        try:
            for _ in range(min(len(waiting), max(AT_ONCE, len(waiting) // PARTS))):
                relay = waiting.popleft()
                data, relay.late = relay.late, b""
                if data:
                    relay.write(data)
        finally:
            # Also when a write failed: the other streams go on.
            if waiting:
                asyncio.get_running_loop().call_soon(self._flush)
