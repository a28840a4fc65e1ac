"""A limit on guessing keys and tokens, for each client address.

Only a wrong credential uses the limit up, and only a wrong one is refused when it is used up: who shares an address
with a guesser (a proxy, a NAT) is not locked out. For an address that has used its limit up, credentials are looked up
in what is in memory (`Snapshot`), so that a flood of guesses costs the store nothing.
"""

import math

from corral.core.errors import RateLimited
from corral.core.rate_limit import RateLimiter, TokenBucket
from corral.system import Clock
from corral.system.http_limits import network_of

WRONG = TokenBucket(capacity=30, per_s=1.0)
ADDRESSES_MOST = 4096


class BruteForceGuard:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong = RateLimiter(WRONG, max_keys=ADDRESSES_MOST)

    def is_used_up(self, address: str) -> bool:
        return self._wrong.wait_s(network_of(address), self._clock.monotonic_s()) > 0

    def note_wrong(self, address: str) -> None:
        """Raises RateLimited where too many came from there already."""
        now_s, network = self._clock.monotonic_s(), network_of(address)
        if not self._wrong.take(network, now_s):
            wait_s = self._wrong.wait_s(network, now_s)
            raise RateLimited(
                f"too many wrong keys came from {address}; try again in {math.ceil(wait_s)} s", retry_after_s=wait_s
            )
