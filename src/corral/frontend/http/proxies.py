"""The client's address of a request that passes proxies.

Anyone can send a forwarding header, so it counts only from trusted proxies, read from right to left: each proxy appends
the address that called it.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence

_FORWARDED_FOR = re.compile(r'for\s*=\s*("[^"]*"|[^;,\s]+)', re.IGNORECASE)
HOPS_MAX = 32


class TrustedProxies:
    def __init__(self, networks: Sequence[str] = ()) -> None:
        """`networks`: addresses or networks (CIDR) of the proxies."""
        self._networks = [ipaddress.ip_network(network, strict=False) for network in networks]

    def client_of(self, peer: str, headers: Mapping[str, str]) -> str:
        """`peer` is the address of the connection; names of `headers` are in lower case."""
        if not self._networks or not self.is_trusted(peer):
            return peer
        clients = {self._client_by(peer, hops) for hops in _read_hops(headers)}
        return clients.pop() if len(clients) == 1 else peer  # if two headers disagree, the client may have sent one

    @property
    def are_named(self) -> bool:
        return bool(self._networks)

    def _client_by(self, peer: str, hops: Sequence[str]) -> str:
        client = peer
        for hop in reversed(hops[-HOPS_MAX:]):
            address = _address(hop)
            if address is None:  # unreadable: the last known address counts
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
    """The addresses in each of the two headers that is present."""
    found = []
    if "x-forwarded-for" in headers:
        found.append(headers["x-forwarded-for"].split(","))
    if "forwarded" in headers:
        found.append([hop.strip('"') for hop in _FORWARDED_FOR.findall(headers["forwarded"])])
    return found


def _address(hop: str) -> str | None:
    """The address of a hop, with or without a port: `192.0.2.1:80`, `[2001:db8::1]:80`."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
