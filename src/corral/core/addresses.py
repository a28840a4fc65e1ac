"""Where a machine says it can be reached, and whether it may say so.

Frontends call the addresses that workers name, with credentials. One that leads to the frontend's own machine or to a
cloud's metadata service is accepted only from who is there itself.
"""

import ipaddress
import re

from corral.core.errors import InvalidInput

_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?")
_METADATA = frozenset(
    ipaddress.ip_address(text) for text in ("169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254")
)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def split_address(text: str, *, what: str) -> tuple[str, int]:
    """`host:port`, and nothing else: no scheme, no path, no user."""
    host, separator, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    good = _NAME.fullmatch(host) is not None or parse_ip(bare) is not None
    if not separator or not good or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise InvalidInput(f"{what}: {text[:100]!r} is not host:port")
    return bare, int(port)


def check_address(text: str, *, what: str, told_from: str | None) -> None:
    """`told_from`: the address the machine was at when it said so; None where nobody knows."""
    host, _ = split_address(text, what=what)
    if is_local_name(host) and not _is_loopback_text(told_from):
        raise InvalidInput(_forbidden(what, text, told_from))
    address = parse_ip(host)
    if address is not None and not may_be_at(address, told_from):
        raise InvalidInput(_forbidden(what, text, told_from))


def may_be_at(address: Address, told_from: str | None) -> bool:
    """Whether who is at `told_from` may say that it is reached at `address`."""
    address = _unmapped(address)
    if address in _METADATA or address.is_multicast:
        return False
    origin = parse_ip(told_from or "")
    if told_from is None:
        return True
    if address.is_loopback or address.is_unspecified:
        return origin is not None and origin.is_loopback
    if address.is_link_local:
        return origin is not None and origin.is_link_local
    return True


def is_local_name(host: str) -> bool:
    name = host.lower().rstrip(".")
    return name == "localhost" or name.endswith(".localhost")


def same_origin(one: str, other: str) -> bool:
    """Whether two connections come from one machine, as far as their addresses tell."""
    first, second = parse_ip(one), parse_ip(other)
    if first is None or second is None:
        return one == other
    return first == second or (first.is_loopback and second.is_loopback)


def parse_ip(text: str) -> Address | None:
    try:
        return _unmapped(ipaddress.ip_address(text))
    except ValueError:
        return None


def _unmapped(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_loopback_text(text: str | None) -> bool:
    address = parse_ip(text or "")
    return text is None or (address is not None and address.is_loopback)


def _forbidden(what: str, text: str, told_from: str | None) -> str:
    return (
        f"{what}: a machine at {told_from or 'an unknown address'} cannot be reached at {text}; tell the address under"
        " which the frontends reach it (--advertise)"
    )
