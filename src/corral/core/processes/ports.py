"""Which port a process gets. Time is passed in and nothing is opened here: an adapter asks whether a port is free."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from corral.core.errors import InvalidSetting, Unavailable

QUARANTINE_S = 15.0
AFFINITY_S = 300.0


class NoPortLeft(Unavailable):
    code = "no_port_left"

    def __init__(self, *, first: int, last: int, in_use: int, quarantined: int, foreign: int) -> None:
        self.reason = (
            f"no port is left in {first}-{last}: {in_use} in use, {quarantined} resting after use, {foreign} held by"
            " other programs"
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


def plan_ports(wanted: PortSpan, *, ephemeral: PortSpan | None, reserved: Iterable[PortSpan] = ()) -> tuple[int, ...]:
    """The wanted ports no outgoing connection of this machine can be given.

    A port inside the ephemeral range may be taken by any program's next connection, just before our process binds it;
    unless the administrator has reserved it, for then the kernel leaves it alone.
    """
    if not 1 <= wanted.first <= wanted.last <= 65535:
        raise InvalidSetting(f"CORRAL_BACKEND_PORTS: {wanted.first}-{wanted.last} is not a range of ports in 1-65535.")
    kept = tuple(reserved)
    ports = tuple(
        port
        for port in range(wanted.first, wanted.last + 1)
        if ephemeral is None or port not in ephemeral or any(port in span for span in kept)
    )
    if not ports:
        raise InvalidSetting(
            f"CORRAL_BACKEND_PORTS: all of {wanted.first}-{wanted.last} lies in the range this machine hands out to"
            " outgoing connections (net.ipv4.ip_local_port_range). Choose ports outside it."
        )
    return ports


@dataclass(slots=True)
class _Past:
    key: str
    released_s: float


class PortPool:
    """At most one owner per port; a port rests after use, then waits a while for the key that had it last."""

    def __init__(
        self, ports: Iterable[int], *, quarantine_s: float = QUARANTINE_S, affinity_s: float = AFFINITY_S
    ) -> None:
        self._ports = tuple(ports)
        self._quarantine_s, self._affinity_s = quarantine_s, affinity_s
        self._owner: dict[int, str] = {}
        self._past: dict[int, _Past] = {}

    @property
    def in_use(self) -> dict[int, str]:
        return dict(self._owner)

    def candidates(self, key: str, *, now_s: float) -> Iterator[int]:
        """The key's own last port, then ports nobody waits for, then unused ones, then those kept for other keys."""
        own, free, unused, kept = [], [], [], []
        for port in self._ports:
            past = self._past.get(port)
            if port in self._owner:
                continue
            if past is None:
                unused.append(port)
                continue
            rested_s = now_s - past.released_s
            if rested_s < self._quarantine_s:
                continue
            if past.key == key:
                own.append(port)
            elif rested_s < self._affinity_s:
                kept.append(port)
            else:
                free.append(port)
        kept.sort(key=lambda port: self._past[port].released_s)
        own.sort(key=lambda port: -self._past[port].released_s)
        yield from (*own, *free, *unused, *kept)

    def claim(self, port: int, key: str) -> None:
        """Also for a port outside the range: an adopted process keeps the one it has, whatever the setting says now."""
        if port in self._owner:
            raise ValueError(f"port {port} already belongs to {self._owner[port]}")
        self._owner[port] = key
        self._past.pop(port, None)

    def release(self, port: int, key: str, *, now_s: float) -> None:
        """Releasing twice is once: several exit paths may each make sure, and the port may be another's by then."""
        if self._owner.get(port) == key:
            del self._owner[port]
            self._past[port] = _Past(key, now_s)

    def exhausted(self, *, now_s: float, foreign: int) -> NoPortLeft:
        resting = sum(
            1
            for port, past in self._past.items()
            if port in self._ports and now_s - past.released_s < self._quarantine_s
        )
        in_use = sum(1 for port in self._ports if port in self._owner)
        first, last = self._ports[0], self._ports[-1]
        return NoPortLeft(first=first, last=last, in_use=in_use, quarantined=resting, foreign=foreign)
