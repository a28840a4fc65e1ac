"""Addresses that workers advertise, and whether a frontend may use them.

Frontends send requests with credentials to these addresses. An address of the frontend's own machine is accepted only
from that machine, and the address of a cloud metadata service never.
"""

import ipaddress
import re

from corral.core.errors import InvalidInput

_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?")
_OLD_NUMBER = re.compile(r"(.*\.)?([0-9]+|0[xX][0-9A-Fa-f]*)\.?")
"""Old spellings of IPv4 addresses that resolvers accept: 127.1, 2130706433, 0x7f000001, 0177.0.0.1."""
_LOCAL_NAME = re.compile(r"(.*\.localhost|(localhost[46]?|loopback|ip6-localhost|ip6-loopback)(\.localdomain[46]?)?)")
_LEADS_TO_IPV4 = tuple(ipaddress.ip_network(text) for text in ("::/96", "64:ff9b::/96", "::ffff:0:0:0/96"))
"""IPv4-compatible, NAT64 and translated addresses: the last four bytes are the IPv4 address."""
_METADATA = frozenset(
    ipaddress.ip_address(text) for text in ("169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254")
)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def split_address(text: str, *, what: str) -> tuple[str, int]:
    """`host:port`, and nothing else: no scheme, no path, no user."""
    host, separator, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_name = _NAME.fullmatch(host) is not None and _OLD_NUMBER.fullmatch(host) is None
    good = is_name or parse_ip(bare) is not None
    if not separator or not good or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise InvalidInput(f"{what}: {text[:100]!r} is not host:port")
    return bare, int(port)


def check_address(text: str, *, what: str, source_address: str | None) -> None:
    """`source_address`: the address that the worker connected from; None when it is unknown."""
    host, _ = split_address(text, what=what)
    if is_local_name(host) and not _is_loopback_text(source_address):
        raise InvalidInput(_forbidden(what, text, source_address))
    address = parse_ip(host)
    if address is not None and not may_be_at(address, source_address):
        raise InvalidInput(_forbidden(what, text, source_address))


def may_be_at(address: Address, source_address: str | None) -> bool:
    """Whether a worker at `source_address` may advertise `address`."""
    address = _unwrapped(address)
    if address in _METADATA or address.is_multicast:
        return False
    origin = parse_ip(source_address or "")
    if source_address is None:
        return True
    if address.is_loopback or address.is_unspecified:
        return origin is not None and origin.is_loopback
    if address.is_link_local:
        return origin is not None and origin.is_link_local
    return True


def is_local_name(host: str) -> bool:
    return _LOCAL_NAME.fullmatch(host.lower().rstrip(".")) is not None


def same_origin(one: str, other: str) -> bool:
    """Whether two connections come from one machine, by their addresses. A machine may change its address within its
    IPv6 network."""
    first, second = parse_ip(one), parse_ip(other)
    if first is None or second is None:
        return one == other
    if first == second or (first.is_loopback and second.is_loopback):
        return True
    return _network_of(first) is not None and _network_of(first) == _network_of(second)


def _network_of(address: Address) -> ipaddress.IPv6Network | None:
    """The /64 network of a machine; None for link-local addresses, which all machines share, and for wrapped IPv4."""
    if address.version == 4 or address.is_link_local or _unwrapped(address) != address:
        return None
    return ipaddress.IPv6Network((int(address), 64), strict=False)


def parse_ip(text: str) -> Address | None:
    try:
        return _unmapped(ipaddress.ip_address(text))
    except ValueError:
        return None


def _unmapped(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _unwrapped(address: Address) -> Address:
    """The IPv4 address inside an IPv6 address of a translation range, else the address itself."""
    address = _unmapped(address)
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback or address.is_unspecified:
        return address
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in _LEADS_TO_IPV4):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_loopback_text(text: str | None) -> bool:
    address = parse_ip(text or "")
    return text is None or (address is not None and address.is_loopback)


def _forbidden(what: str, text: str, source_address: str | None) -> str:
    return (
        f"{what}: a worker at {source_address or 'an unknown address'} must not advertise {text}; set the address"
        " at which frontends reach it (--advertise)"
    )
