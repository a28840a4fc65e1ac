"""Checks the addresses that a host name resolves to."""

import asyncio
import socket

from corral.core.errors import Unavailable
from corral.core.nodes.addresses import may_be_at, parse_ip, split_address

LOOK_UP_WITHIN_S = 5.0
_DISCARD_PORT = 9


def is_own_address(text: str) -> bool:
    """Whether the address belongs to this machine. Uses the source address of the route, which for an own address is
    the address itself; a bind would also succeed for other addresses if ip_nonlocal_bind is set."""
    address = parse_ip(text)
    if address is None or address.is_loopback:
        return address is not None
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _DISCARD_PORT))  # nothing is sent
            return parse_ip(probe.getsockname()[0]) == address
    except OSError:
        return False


def seen_from_here(source_address: str | None) -> str | None:
    """Maps all addresses of this machine to loopback."""
    return "127.0.0.1" if source_address is not None and is_own_address(source_address) else source_address


async def check_reach(
    address: str, *, source_address: str | None, what: str, within_s: float = LOOK_UP_WITHIN_S
) -> None:
    """Raises if a node's `host:port` resolves to an address that is not allowed for it (`may_be_at`). The name may
    resolve differently later, but only an already approved node could exploit that."""
    host, port = split_address(address, what=what)
    found = parse_ip(host)
    if found is not None:
        addresses = [found]
    else:
        try:
            async with asyncio.timeout(within_s):
                answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise Unavailable(
                f"{what}: looking up {host} took longer than {within_s:g} s; check the name server"
            ) from error
        except OSError as error:
            raise Unavailable(f"{what}: cannot look up {host}: {error.strerror or error}") from error
        addresses = [parsed for answer in answers if (parsed := parse_ip(str(answer[4][0]))) is not None]
    origin = seen_from_here(source_address)
    for one in addresses:
        if not may_be_at(one, origin):
            raise Unavailable(f"{what}: {address} resolves to {one}, which a node at {source_address} cannot have")
