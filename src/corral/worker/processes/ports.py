"""Allocates ports: the pool proposes one, and a bind checks that no other program uses it."""

import socket
from pathlib import Path

from corral.core.errors import Unavailable
from corral.core.processes.ports import NoPortLeft, PortPool, PortSpan, plan_ports
from corral.system import Clock

DEFAULT_PORTS = PortSpan(20000, 23999)


class Ports:
    def __init__(self, pool: PortPool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock
        self._none_left = False
        """Whether the last allocation failed."""

    @property
    def in_use(self) -> dict[int, str]:
        return self._pool.in_use

    def take(self, key: str, *, avoid: frozenset[int] = frozenset()) -> int:
        """`avoid`: ports that another program took recently, although the bind had succeeded."""
        now_s = self._clock.monotonic_s()
        foreign = 0
        for port in self._pool.candidates(key, now_s=now_s):
            try:
                free = port not in avoid and can_bind(port)
            except OSError as problem:
                raise Unavailable(
                    f"this machine cannot start another process now: {problem}. Free resources on it and try again."
                ) from problem
            if not free:
                foreign += 1
                continue
            self._pool.claim(port, key)
            self._none_left = False
            return port
        self._none_left = True
        raise self._pool.exhausted(now_s=now_s, foreign=foreign)

    def find_exhausted(self) -> NoPortLeft | None:
        """Why the next allocation would fail. Checks for other programs only after a failed allocation."""
        now_s, foreign = self._clock.monotonic_s(), 0
        for port in self._pool.candidates("", now_s=now_s):
            if not self._none_left or can_bind(port):
                return None
            foreign += 1
        return self._pool.exhausted(now_s=now_s, foreign=foreign)

    def keep(self, port: int, key: str) -> None:
        """Claims the port of an adopted process."""
        self._pool.claim(port, key)

    def release(self, port: int, key: str) -> None:
        self._pool.release(port, key, now_s=self._clock.monotonic_s())


def can_bind(port: int) -> bool:
    """Binds to all addresses, to detect a listener on any of them; with SO_REUSEADDR, to ignore recently closed
    connections."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def read_port_pool(span: PortSpan = DEFAULT_PORTS, root: Path = Path("/")) -> PortPool:
    settings = root / "proc/sys/net/ipv4"
    spans = _spans(_text(settings / "ip_local_port_range").replace("\t", "-").replace(" ", "-"))
    reserved = _spans(_text(settings / "ip_local_reserved_ports"))
    return PortPool(plan_ports(span, ephemeral=spans[0] if spans else None, reserved=reserved))


def _spans(text: str) -> list[PortSpan]:
    """`32768-60999` or `8080,9000-9100`."""
    spans = []
    for part in text.split(","):
        numbers = [int(number) for number in part.split("-") if number.isdigit()]
        if numbers:
            spans.append(PortSpan(numbers[0], numbers[-1]))
    return spans


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
