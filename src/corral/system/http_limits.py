"""The limits of an HTTP server on all of its clients."""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network

DESCRIPTORS_KEPT = 128
"""Descriptors that are reserved for the store, the bus, logs and files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    head_bytes: int = 64 * 1024
    """Of a request's head, and of size lines and trailers between bytes of its body."""
    headers: int = 100
    pipelined: int = 64
    """Requests that a client may send before the first one is answered."""
    head_within_s: float = 15.0
    """From the first byte of a head to its last."""
    idle_s: float = 75.0
    """How long a connection may stay open without a request."""
    body_silence_s: float = 120.0
    """How long a request that needs its body may receive none of it."""
    stall_s: float = 60.0
    """How long a client may read nothing of what it was sent."""
    unauthenticated_answer_s: float = 300.0
    """How long an answer to a client without a valid credential may take, however slowly it is read. Such answers are
    pages and their assets, which are small."""
    discard_bytes: int = 32 << 20
    """How much of a rejected request is still read, so that the client reads the answer."""
    discard_within_s: float = 5.0
    connections: int = 1024
    """Of all clients together."""
    connections_per_address: int = 512
    """Of one client: an IPv4 address, or the network of an IPv6 address."""


def connections_within(descriptors: int) -> int:
    """The number of clients for a number of descriptors. Each may need a second one for a replica."""
    return max(16, (descriptors - DESCRIPTORS_KEPT) // 2)


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """The unit of the limit per address. The owner of an IPv6 address usually has its whole /64 network."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4 or parsed.ipv4_mapped is not None:
        return address
    return str(ip_network((parsed, 64), strict=False))
