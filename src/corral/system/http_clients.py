"""The clients of an HTTP server: who is let in, whose deadlines are due, and who has to go when all places are taken.

A place is one descriptor. When there is none left, the connection goes that has waited longest without showing a
credential that is good here: everybody else sends a request soon, and whoever only holds places loses them first.
Where no connection waits, the one goes whose sender has shown no such credential and has been answered for longest.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, MutableMapping
from itertools import chain, islice
from typing import Any, Protocol

import structlog

from corral.system.http_limits import HttpLimits, network_of

log = structlog.get_logger()

TICK_EVERY_S = 0.5
LOOKS_MOST = 64
"""Connections that are looked at for one that may go. Those that may not go to the end of the line."""
SAY_EVERY_S = 60.0
_FULL = b"every place for a connection is taken; try again"
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 2\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class Endpoint(Protocol):
    """What reads a connection at the moment."""

    def is_idle(self) -> bool:
        """Whether it may be ended: nothing is being answered, and nothing of a known client is being read."""
        ...

    def stranger_since_s(self) -> float | None:
        """Since when it has been answering a client without a good credential; None: it is not doing so."""
        ...

    def tick(self, now_s: float) -> None:
        """Looks at its deadlines."""
        ...


class Connected:
    """A client's connection, whichever protocol reads it."""

    __slots__ = ("endpoint", "is_known", "network", "transport")

    def __init__(self, endpoint: Endpoint, transport: asyncio.Transport, network: str) -> None:
        self.endpoint = endpoint
        self.transport = transport
        self.network = network
        self.is_known = False
        """It has shown a credential that is good here."""


class _Line:
    """Connections in the order in which they came."""

    __slots__ = ("known", "unknown")

    def __init__(self) -> None:
        self.unknown: dict[Connected, None] = {}
        self.known: dict[Connected, None] = {}

    def __len__(self) -> int:
        return len(self.unknown) + len(self.known)

    def move(self, client: Connected) -> None:
        del self.unknown[client]
        self.known[client] = None

    def remove(self, client: Connected) -> None:
        self.unknown.pop(client, None)
        self.known.pop(client, None)

    def find_idle(self) -> Connected | None:
        for clients in (self.unknown, self.known):
            for client in list(islice(clients, LOOKS_MOST)):
                may_go = (
                    clients is self.known or not client.is_known
                )  # who became known since the last tick is here yet
                if may_go and client.endpoint.is_idle() and not client.transport.is_closing():
                    return client
                del clients[client]
                clients[client] = None
        return None

    def find_stranger(self) -> Connected | None:
        """Also one whose connection is being closed: it keeps its place until it has read its answer."""
        held: list[tuple[float, Connected]] = []
        for client in islice(self.unknown, LOOKS_MOST):
            since_s = client.endpoint.stranger_since_s()
            if since_s is not None and not client.is_known:
                held.append((since_s, client))
        return min(held, key=lambda one: one[0])[1] if held else None


class Clients:
    def __init__(
        self,
        limits: HttpLimits,
        *,
        is_proxy: Callable[[str], bool] = lambda _address: False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_proxy`: whether many clients come from this address, so that it has no limit of its own."""
        self._limits = limits
        self._is_proxy = is_proxy
        self.now_s = now_s
        self._all = _Line()
        self._by_network: dict[str, _Line] = {}
        self.ended = 0
        self.refused = 0
        self._said_s = -SAY_EVERY_S

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, endpoint: Endpoint, transport: asyncio.Transport) -> Connected | None:
        """None: no place could be made, and the connection is being closed."""
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        network = network_of(address)
        line = self._by_network.get(network)
        if line is not None and len(line) >= self._limits.connections_per_address and not self._is_proxy(address):
            has_room = self._make_room(line)
        else:
            has_room = len(self._all) < self._limits.connections or self._make_room(self._all)
        if not has_room:
            self._refuse(transport, address)
            return None
        client = Connected(endpoint, transport, network)
        self._all.unknown[client] = None
        self._by_network.setdefault(network, _Line()).unknown[client] = None
        return client

    def leave(self, client: Connected) -> None:
        self._all.remove(client)
        line = self._by_network.get(client.network)
        if line is not None:
            line.remove(client)
            if not len(line):
                del self._by_network[client.network]

    def _make_room(self, line: _Line) -> bool:
        client = line.find_idle() or line.find_stranger()
        if client is None:
            return False
        self.ended += 1
        self._say(client.network)
        self.leave(client)
        client.transport.abort()
        return True

    def _refuse(self, transport: asyncio.Transport, address: str) -> None:
        self.refused += 1
        self._say(address)
        transport.write(_REFUSAL)
        transport.close()

    def _say(self, address: str) -> None:
        now_s = self.now_s()
        if now_s - self._said_s < SAY_EVERY_S:
            return
        self._said_s = now_s
        log.warning(
            "http.connections_full", open=len(self), ended=self.ended, refused=self.refused, address=address,
            limit=self._limits.connections, limit_per_address=self._limits.connections_per_address,
        )  # fmt: skip

    def tick(self) -> None:
        """All deadlines, twice a second, instead of a timer for each connection."""
        now_s = self.now_s()
        for client in list(self._each()):
            client.endpoint.tick(now_s)
        for client in [client for client in self._all.unknown if client.is_known]:
            self._all.move(client)
            self._by_network[client.network].move(client)

    def _each(self) -> Iterator[Connected]:
        return chain(self._all.unknown, self._all.known)

    async def tick_for_ever(self) -> None:
        while True:
            try:
                self.tick()
            except Exception:
                log.exception("http.tick_crashed")
            await asyncio.sleep(TICK_EVERY_S)


def note_known(scope: MutableMapping[str, Any]) -> None:
    """The client of this ASGI request has shown a credential that is good here."""
    client = scope.get("state", {}).get("client")
    if client is not None:
        client.is_known = True


def end_answers(transport: asyncio.Transport) -> None:
    """The client reads the end of its answer at once and can stop sending. What still comes is to be read, or the
    operating system resets the connection and the answer may be lost."""
    if transport.can_write_eof():
        transport.write_eof()
