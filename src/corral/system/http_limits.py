"""How much, how long and how many an HTTP server takes from its clients, whoever they are."""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network

DESCRIPTORS_KEPT = 128
"""For the store, the bus, logs and files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    head_bytes: int = 64 * 1024
    """Of a request's head, and of what comes without a byte of body while one is read: size lines and trailers."""
    headers: int = 100
    pipelined: int = 64
    """Requests that a client may send before the first of them is answered."""
    head_within_s: float = 15.0
    """From a head's first byte to its last."""
    idle_s: float = 75.0
    """How long a connection may stay open without a request."""
    body_silence_s: float = 120.0
    """How long nothing of a body may come that somebody waits for."""
    stall_s: float = 60.0
    """How long a client may take nothing of what it was sent."""
    stranger_answer_s: float = 300.0
    """How long an answer may take that the app gives to somebody without a good credential, however slowly it is read:
    pages and their assets, which are small."""
    discard_bytes: int = 32 << 20
    """How much of a refused request is still read, so that its sender comes to read the answer."""
    discard_within_s: float = 5.0
    connections: int = 1024
    """Of all clients together."""
    connections_per_address: int = 512
    """Of one client: an IPv4 address, or the network of an IPv6 address."""


def connections_within(descriptors: int) -> int:
    """How many clients a process with so many descriptors can have: each may need another one towards a replica."""
    return max(16, (descriptors - DESCRIPTORS_KEPT) // 2)


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Who has one IPv6 address has the 2^64 around it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4 or parsed.ipv4_mapped is not None:
        return address
    return str(ip_network((parsed, 64), strict=False))
