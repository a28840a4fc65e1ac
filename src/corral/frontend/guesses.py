"""A limit on guessing keys and tokens, for each client address.

Only a wrong credential uses the limit up. Once it is used up, what this address sends is refused unlooked-at, but for
credentials that were right from there before: a guesser next door locks nobody out.
"""

import ipaddress
import math
from collections import OrderedDict

from corral.core.allowance import Allowance, Allowances
from corral.core.errors import RateLimited
from corral.system import Clock

WRONG = Allowance(most=30, per_s=1.0)
ADDRESSES_MOST = 4096
RIGHT_MOST = 16384
RIGHT_FOR_S = 12 * 3600.0


class Guesses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong = Allowances(WRONG, keys_most=ADDRESSES_MOST)
        self._right: OrderedDict[tuple[str, str], float] = OrderedDict()

    def check(self, address: str, secret_hash: str) -> None:
        """Before the credential is looked up. Raises RateLimited."""
        now_s = self._clock.monotonic_s()
        wait_s = self._wrong.wait_s(network_of(address), now_s)
        if wait_s and now_s - self._right.get((address, secret_hash), -math.inf) > RIGHT_FOR_S:
            raise RateLimited(
                f"too many wrong keys came from {address}; try again in {math.ceil(wait_s)} s",
                retry_after_s=wait_s,
            )

    def note_wrong(self, address: str) -> None:
        self._wrong.take(network_of(address), self._clock.monotonic_s())

    def note_right(self, address: str, secret_hash: str) -> None:
        key = (address, secret_hash)
        self._right[key] = self._clock.monotonic_s()
        self._right.move_to_end(key)
        if len(self._right) > RIGHT_MOST:
            self._right.popitem(last=False)


def network_of(address: str) -> str:
    """Who has one IPv6 address has the 2^64 around it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4 or parsed.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
