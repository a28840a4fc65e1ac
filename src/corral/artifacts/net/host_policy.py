"""Which hosts may be contacted. The name is checked before the request and the address when connecting, so a name that
changes its address in between gains nothing."""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from corral.artifacts.errors import BadReference, PolicyRefused
from corral.artifacts.settings import NetworkPolicy

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Written out instead of asking `is_private`: its meaning changed between Python versions, and what is refused here
# is part of what we promise. Documentation networks are left out on purpose; nothing of anybody's lives there.
_REFUSED = {
    network: why
    for why, networks in {
        "this machine": ("0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128"),
        "a private network": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
        "a carrier-grade NAT network": ("100.64.0.0/10",),
        "link-local, as used by cloud metadata services": ("169.254.0.0/16", "fe80::/10"),
        "reserved": ("192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "::/96", "100::/64", "2001::/32"),
        "multicast": ("224.0.0.0/4", "ff00::/8"),
    }.items()
    for network in map(ipaddress.ip_network, networks)
}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOOPBACK_NAMES = {"localhost", "ip6-localhost"}
_NUMERIC_LABEL = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z", re.IGNORECASE)


def embedded_address(address: Address) -> Address:
    """The IPv4 address inside an IPv6 address: mapped, 6to4 and NAT64 forms reach the same machine."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def refusal_of(address: Address) -> str | None:
    """Why this address is not public, or None."""
    for candidate in {address, embedded_address(address)}:
        for network, why in _REFUSED.items():
            # A mapped address lies in ::/96's neighbourhood only by notation, so versions are compared first.
            if candidate.version == network.version and candidate in network:
                return why
    return None


def is_loopback(host: str) -> bool:
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _trusted_networks(entries: Iterable[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(entry, strict=False) for entry in entries if "/" in entry]


def _names(host: str, port: int) -> set[str]:
    return {host.lower(), f"{host.lower()}:{port}"}


def check_address(policy: NetworkPolicy, host: str, port: int, address: str) -> str | None:
    """Why `host` must not be contacted at `address`, or None. Called for every connection."""
    if _names(host, port) & policy.trusted_hosts:
        return None
    parsed = ipaddress.ip_address(address.partition("%")[0])
    plain = embedded_address(parsed)
    if any(
        plain.version == network.version and plain in network for network in _trusted_networks(policy.trusted_hosts)
    ):
        return None
    why = refusal_of(parsed)
    if why is None:
        return None
    return f"{host} is {why}" if host == address else f"{host} has the address {address}, which is {why}"


def check_url(policy: NetworkPolicy, url: str) -> SplitResult:
    """Checks scheme, host and notation. Raises before any name is looked up."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadReference(f"{url[:200]!r} is not an address: {error}.") from error
    if any(ord(character) < 0x21 or ord(character) == 0x7F for character in url):
        raise BadReference("An address must not contain spaces or control characters.")
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https"):
        raise PolicyRefused(f"Scheme {parts.scheme!r} is not supported; use https, or http where it is allowed.")
    if not host:
        raise BadReference(f"{url[:200]!r} has no host.")
    if parts.username is not None or parts.password is not None:
        raise BadReference("The address contains credentials, which logs would show; put them into the settings.")
    _check_notation(host)
    if parts.scheme == "http":
        allowed = is_loopback(host) or bool(_names(host, port or 80) & policy.plain_http_hosts)
        if not allowed:
            raise PolicyRefused(
                f"{host} would be contacted without TLS. Use https, or list the host in the setting plain_http_hosts"
                " (`corral artifacts` has --plain-http)."
            )
    return parts


def _check_notation(host: str) -> None:
    """Rejects `2130706433`, `0x7f.1` and `127.1`: only attacks write addresses like this."""
    if ":" in host:
        ipaddress.ip_address(host.partition("%")[0])
        return
    if _NUMERIC_LABEL.match(host.rstrip(".").rpartition(".")[2]):
        try:
            canonical = str(ipaddress.IPv4Address(host)) == host
        except ValueError:
            canonical = False
        if not canonical:
            raise PolicyRefused(f"{host!r} is not an address in dotted decimal notation.")


def origin_of(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)
