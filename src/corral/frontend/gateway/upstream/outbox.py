"""Delays the chunks of running streams until the event loop has read everything that arrived.

Reading a chunk is fast, writing it is slow. If each were written as soon as it is read, a new request or the first
token of an answer would wait behind all chunks that arrived before it. So chunks wait until the end of the loop's pass.
Then they are written a few dozen at a time, and new input is read in between. A late stream gets all its chunks at
once."""

import asyncio
from collections import deque

from corral.frontend.gateway.upstream.calls import ChunkRelay

AT_ONCE = 64
# At least this part of the waiting streams is written between two passes, so that none waits for many passes.
PARTS = 4


class Outbox:
    """One for each loop."""

    def __init__(self) -> None:
        self._waiting: deque[ChunkRelay] = deque()

    def post(self, relay: ChunkRelay) -> None:
        """Called once for each relay with delayed chunks. More may be added to the relay until it is flushed."""
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
            # Also after a failed write: the other streams continue.
            if waiting:
                asyncio.get_running_loop().call_soon(self._flush)
