"""Chooses ports for processes. Nothing is opened here: the caller checks whether a port is free."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from corral.core.errors import InvalidSetting, Unavailable

QUARANTINE_S = 15.0
AFFINITY_S = 300.0


class NoPortLeft(Unavailable):
    code = "no_port_left"

    def __init__(self, *, first: int, last: int, in_use: int, quarantined: int, foreign: int) -> None:
        self.reason = (
            f"no port is free in {first}-{last}: {in_use} in use, {quarantined} in quarantine, {foreign} held by other"
            " programs"
        )
        super().__init__(
            f"N{self.reason[1:]}. Stop a process, wait 15 s, or widen the range with CORRAL_BACKEND_PORTS."
        )


@dataclass(frozen=True, slots=True)
class PortSpan:
    first: int
    last: int

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last


def plan_ports(
    configured: PortSpan, *, ephemeral: PortSpan | None, reserved: Iterable[PortSpan] = ()
) -> tuple[int, ...]:
    """The configured ports that the kernel never gives to an outgoing connection.

    A port in the ephemeral range may be taken by any connection just before our process binds it, unless the
    administrator has reserved it.
    """
    if not 1 <= configured.first <= configured.last <= 65535:
        raise InvalidSetting(
            f"CORRAL_BACKEND_PORTS: {configured.first}-{configured.last} is not a range of ports within 1-65535."
        )
    kept = tuple(reserved)
    ports = tuple(
        port
        for port in range(configured.first, configured.last + 1)
        if ephemeral is None or port not in ephemeral or any(port in span for span in kept)
    )
    if not ports:
        raise InvalidSetting(
            f"CORRAL_BACKEND_PORTS: all of {configured.first}-{configured.last} is in the range of outgoing connections"
            " on this machine (net.ipv4.ip_local_port_range). Choose ports outside of it."
        )
    return ports


@dataclass(slots=True)
class _LastUse:
    key: str
    released_s: float


class PortPool:
    """At most one owner per port. A port is in quarantine after use, and is then kept for a while for the key that
    had it."""

    def __init__(
        self, ports: Iterable[int], *, quarantine_s: float = QUARANTINE_S, affinity_s: float = AFFINITY_S
    ) -> None:
        self._ports = tuple(ports)
        self._quarantine_s, self._affinity_s = quarantine_s, affinity_s
        self._owner: dict[int, str] = {}
        self._past: dict[int, _LastUse] = {}

    @property
    def in_use(self) -> dict[int, str]:
        return dict(self._owner)

    def candidates(self, key: str, *, now_s: float) -> Iterator[int]:
        """The last port of the key, then ports that are kept for no key, then unused ones, then those kept for other
        keys."""
        own, free, unused, kept = [], [], [], []
        for port in self._ports:
            past = self._past.get(port)
            if port in self._owner:
                continue
            if past is None:
                unused.append(port)
                continue
            idle_s = now_s - past.released_s
            if idle_s < self._quarantine_s:
                continue
            if past.key == key:
                own.append(port)
            elif idle_s < self._affinity_s:
                kept.append(port)
            else:
                free.append(port)
        kept.sort(key=lambda port: self._past[port].released_s)
        own.sort(key=lambda port: -self._past[port].released_s)
        yield from (*own, *free, *unused, *kept)

    def claim(self, port: int, key: str) -> None:
        """Also for a port outside of the range: an adopted process keeps its port when the setting changed."""
        if port in self._owner:
            raise ValueError(f"port {port} already belongs to {self._owner[port]}")
        self._owner[port] = key
        self._past.pop(port, None)

    def release(self, port: int, key: str, *, now_s: float) -> None:
        """Only the owner releases a port: several exit paths may call this, and another key may own the port by
        then."""
        if self._owner.get(port) == key:
            del self._owner[port]
            self._past[port] = _LastUse(key, now_s)

    def exhausted(self, *, now_s: float, foreign: int) -> NoPortLeft:
        quarantined = sum(
            1
            for port, past in self._past.items()
            if port in self._ports and now_s - past.released_s < self._quarantine_s
        )
        in_use = sum(1 for port in self._ports if port in self._owner)
        first, last = self._ports[0], self._ports[-1]
        return NoPortLeft(first=first, last=last, in_use=in_use, quarantined=quarantined, foreign=foreign)
