"""Where a name leads, before it is called."""

import asyncio
import socket

from corral.core.addresses import may_be_at, parse_ip, split_address
from corral.core.errors import Unavailable


def is_own_address(text: str) -> bool:
    """Whether it is one of this machine's: who connects from there is here."""
    address = parse_ip(text)
    if address is None:
        return False
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(address), 0))
        except OSError:
            return False
    return True


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
            answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Unavailable(f"{what}: the name {host} could not be looked up: {error.strerror or error}") from error
        addresses = [parsed for answer in answers if (parsed := parse_ip(str(answer[4][0]))) is not None]
    origin = seen_from_here(told_from)
    for one in addresses:
        if not may_be_at(one, origin):
            raise Unavailable(f"{what}: {address} leads to {one}, where a machine at {told_from} cannot be")
