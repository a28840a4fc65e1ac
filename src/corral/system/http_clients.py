"""The slots for clients of an HTTP server: who gets one, whose deadlines are due, and who loses one when all are taken.

A slot is one descriptor. When none is left, the connection that has been idle longest without a valid credential is
closed: a real client sends a request soon, so those that only occupy slots lose them first. If no connection is idle,
the one that has been answered longest without a valid credential is closed.
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
CHECKS_MAX = 64
"""How many connections are checked to find one to close. Those that stay go to the end."""
LOG_EVERY_S = 60.0
_FULL = b"too many connections; retry later"
_REJECTION = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 2\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class ConnectionHandler(Protocol):
    """The protocol that currently reads a connection."""

    def is_idle(self) -> bool:
        """Whether the connection may be closed: no request is being answered, and none of a known client received."""
        ...

    def unauthenticated_since_s(self) -> float | None:
        """Since when it has been answering a client without a valid credential; None if it is not."""
        ...

    def tick(self, now_s: float) -> None:
        """Checks its deadlines."""
        ...


class ClientSlot:
    """The slot of a connection, whichever protocol reads it."""

    __slots__ = ("endpoint", "is_known", "network", "transport")

    def __init__(self, endpoint: ConnectionHandler, transport: asyncio.Transport, network: str) -> None:
        self.endpoint = endpoint
        self.transport = transport
        self.network = network
        self.is_known = False
        """Whether the client has presented a valid credential."""


class _Connections:
    """Connections in order of arrival."""

    __slots__ = ("known", "unknown")

    def __init__(self) -> None:
        self.unknown: dict[ClientSlot, None] = {}
        self.known: dict[ClientSlot, None] = {}

    def __len__(self) -> int:
        return len(self.unknown) + len(self.known)

    def move(self, client: ClientSlot) -> None:
        del self.unknown[client]
        self.known[client] = None

    def remove(self, client: ClientSlot) -> None:
        self.unknown.pop(client, None)
        self.known.pop(client, None)

    def find_idle(self) -> ClientSlot | None:
        for clients in (self.unknown, self.known):
            for client in list(islice(clients, CHECKS_MAX)):
                may_go = (
                    clients is self.known or not client.is_known
                )  # one that became known since the last tick is still in `unknown`
                if may_go and client.endpoint.is_idle() and not client.transport.is_closing():
                    return client
                del clients[client]
                clients[client] = None
        return None

    def find_unauthenticated(self) -> ClientSlot | None:
        """Includes connections that are being closed: they keep their slot until the client has read the answer."""
        held: list[tuple[float, ClientSlot]] = []
        for client in islice(self.unknown, CHECKS_MAX):
            since_s = client.endpoint.unauthenticated_since_s()
            if since_s is not None and not client.is_known:
                held.append((since_s, client))
        return min(held, key=lambda one: one[0])[1] if held else None


class ClientSlots:
    def __init__(
        self,
        limits: HttpLimits,
        *,
        is_proxy: Callable[[str], bool] = lambda _address: False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_proxy`: whether many clients share an address, so that it has no limit."""
        self._limits = limits
        self._is_proxy = is_proxy
        self.now_s = now_s
        self._all = _Connections()
        self._by_network: dict[str, _Connections] = {}
        self.ended = 0
        self.rejected = 0
        self._logged_s = -LOG_EVERY_S

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, endpoint: ConnectionHandler, transport: asyncio.Transport) -> ClientSlot | None:
        """None: there is no free slot, and the connection is being closed."""
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        network = network_of(address)
        connections = self._by_network.get(network)
        if (
            connections is not None
            and len(connections) >= self._limits.connections_per_address
            and not self._is_proxy(address)
        ):
            has_slot = self._free_slot(connections)
        else:
            has_slot = len(self._all) < self._limits.connections or self._free_slot(self._all)
        if not has_slot:
            self._reject(transport, address)
            return None
        client = ClientSlot(endpoint, transport, network)
        self._all.unknown[client] = None
        self._by_network.setdefault(network, _Connections()).unknown[client] = None
        return client

    def leave(self, client: ClientSlot) -> None:
        self._all.remove(client)
        connections = self._by_network.get(client.network)
        if connections is not None:
            connections.remove(client)
            if not len(connections):
                del self._by_network[client.network]

    def _free_slot(self, connections: _Connections) -> bool:
        client = connections.find_idle() or connections.find_unauthenticated()
        if client is None:
            return False
        self.ended += 1
        self._log(client.network)
        self.leave(client)
        client.transport.abort()
        return True

    def _reject(self, transport: asyncio.Transport, address: str) -> None:
        self.rejected += 1
        self._log(address)
        transport.write(_REJECTION)
        transport.close()

    def _log(self, address: str) -> None:
        now_s = self.now_s()
        if now_s - self._logged_s < LOG_EVERY_S:
            return
        self._logged_s = now_s
        log.warning(
            "http.connections_full", open=len(self), ended=self.ended, rejected=self.rejected, address=address,
            limit=self._limits.connections, limit_per_address=self._limits.connections_per_address,
        )  # fmt: skip

    def tick(self) -> None:
        """Checks all deadlines, twice a second. This replaces a timer for each connection."""
        now_s = self.now_s()
        for client in list(self._each()):
            client.endpoint.tick(now_s)
        for client in [client for client in self._all.unknown if client.is_known]:
            self._all.move(client)
            self._by_network[client.network].move(client)

    def _each(self) -> Iterator[ClientSlot]:
        return chain(self._all.unknown, self._all.known)

    async def keep_ticking(self) -> None:
        while True:
            try:
                self.tick()
            except Exception:  # a bug in one tick must not end the limits
                log.exception("http.tick_crashed")
            await asyncio.sleep(TICK_EVERY_S)


def mark_authenticated(scope: MutableMapping[str, Any]) -> None:
    """Records that the client of this ASGI request has presented a valid credential."""
    client = scope.get("state", {}).get("client")
    if client is not None:
        client.is_known = True


def end_responses(transport: asyncio.Transport) -> None:
    """Lets the client read the end of its answer at once, so that it can stop sending. Its remaining input must be
    read: otherwise the operating system resets the connection, and the answer may be lost."""
    if transport.can_write_eof():
        transport.write_eof()
