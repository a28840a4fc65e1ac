"""Whose address a request comes from, where a proxy stands in front.

What a header says, anybody can say; so it counts only from proxies an administrator has named, and from right to left:
each of them wrote down whom it was called by.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence

_FORWARDED_FOR = re.compile(r'for\s*=\s*("[^"]*"|[^;,\s]+)', re.IGNORECASE)
HOPS_MOST = 32


class TrustedProxies:
    def __init__(self, networks: Sequence[str] = ()) -> None:
        """`networks`: addresses or networks (CIDR) of the proxies."""
        self._networks = [ipaddress.ip_network(network, strict=False) for network in networks]

    def client_of(self, peer: str, headers: Mapping[str, str]) -> str:
        """`peer` is who opened the connection; names of `headers` are in lower case."""
        if not self._networks or not self.is_trusted(peer):
            return peer
        told = {self._client_by(peer, hops) for hops in _read_hops(headers)}
        return told.pop() if len(told) == 1 else peer  # one of two that disagree may be the client's own invention

    @property
    def are_named(self) -> bool:
        return bool(self._networks)

    def _client_by(self, peer: str, hops: Sequence[str]) -> str:
        client = peer
        for hop in reversed(hops[-HOPS_MOST:]):
            address = _address(hop)
            if address is None:  # what was meant is unknown: the last one we know of is whom we blame
                break
            client = address
            if not self.is_trusted(client):
                break
        return client

    def is_trusted(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        return any((mapped or parsed) in network for network in self._networks)


def _read_hops(headers: Mapping[str, str]) -> list[list[str]]:
    """As each header that is there tells it."""
    told = []
    if "x-forwarded-for" in headers:
        told.append(headers["x-forwarded-for"].split(","))
    if "forwarded" in headers:
        told.append([found.strip('"') for found in _FORWARDED_FOR.findall(headers["forwarded"])])
    return told


def _address(hop: str) -> str | None:
    """With or without a port: `192.0.2.1:80`, `[2001:db8::1]:80`."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
