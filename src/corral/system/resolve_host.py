"""Where a name leads, before it is called."""

import asyncio
import socket

from corral.core.errors import Unavailable
from corral.core.nodes.addresses import may_be_at, parse_ip, split_address

LOOK_UP_WITHIN_S = 5.0
_DISCARD_PORT = 9


def is_own_address(text: str) -> bool:
    """Whether it is one of this machine's: who connects from there is here. Asked by the way there, which begins and
    ends at one's own address; whether one could bind to it says nothing where ip_nonlocal_bind is set."""
    address = parse_ip(text)
    if address is None or address.is_loopback:
        return address is not None
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.connect((str(address), _DISCARD_PORT))  # nothing is sent
            return parse_ip(trial.getsockname()[0]) == address
    except OSError:
        return False


def seen_from_here(told_from: str | None) -> str | None:
    """An address of this machine means this machine, whichever of them it is."""
    return "127.0.0.1" if told_from is not None and is_own_address(told_from) else told_from


async def check_reach(address: str, *, told_from: str | None, what: str) -> None:
    """A machine's `host:port`, by name or number, must not lead where it may not be (`may_be_at`). A name may lead
    elsewhere a moment later; who can make it do so holds an approved machine already."""
    host, port = split_address(address, what=what)
    found = parse_ip(host)
    if found is not None:
        addresses = [found]
    else:
        try:
            async with asyncio.timeout(LOOK_UP_WITHIN_S):
                answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise Unavailable(f"{what}: the name {host} was not resolved within {LOOK_UP_WITHIN_S:g} s") from error
        except OSError as error:
            raise Unavailable(f"{what}: the name {host} could not be resolved: {error.strerror or error}") from error
        addresses = [parsed for answer in answers if (parsed := parse_ip(str(answer[4][0]))) is not None]
    origin = seen_from_here(told_from)
    for one in addresses:
        if not may_be_at(one, origin):
            raise Unavailable(f"{what}: {address} resolves to {one}, which a machine at {told_from} cannot use")
