"""A rate limit on wrong keys and tokens, for each client address.

Only wrong credentials count, and only wrong ones are rejected when the limit is exhausted: clients that share an
address with an attacker (behind a proxy or NAT) are not locked out. For an exhausted address, credentials are looked up
in memory (`Snapshot`), so that a flood of guesses costs the store nothing.
"""

import math

from corral.core.errors import RateLimited
from corral.core.rate_limit import RateLimiter, TokenBucket
from corral.system import Clock
from corral.system.http_limits import network_of

WRONG = TokenBucket(capacity=30, per_s=1.0)
ADDRESSES_MAX = 4096


class BruteForceGuard:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong = RateLimiter(WRONG, max_keys=ADDRESSES_MAX)

    def is_exhausted(self, address: str) -> bool:
        return self._wrong.wait_s(network_of(address), self._clock.monotonic_s()) > 0

    def record_wrong(self, address: str) -> None:
        """Raises RateLimited when too many wrong credentials came from this address."""
        now_s, network = self._clock.monotonic_s(), network_of(address)
        if not self._wrong.take(network, now_s):
            wait_s = self._wrong.wait_s(network, now_s)
            raise RateLimited(
                f"too many wrong keys from {address}; retry in {math.ceil(wait_s)} s", retry_after_s=wait_s
            )
