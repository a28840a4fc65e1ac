"""Listening sockets. An error names the program that already uses the port."""

import errno
import socket

from corral.core.errors import Unavailable
from corral.system.port_owner import find_port_owner

Listener = socket.socket
"""A listening TCP socket."""


class PortTaken(Unavailable):
    """Another program uses the port; another port may be free."""


def bind_socket(host: str, port: int, *, setting: str | None, shared: bool = False) -> socket.socket:
    """A listening TCP socket. An error names the address and `setting`, with which the user can change it.

    `shared`: other processes of this user may listen there too; the kernel distributes connections among them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
        # Two processes may both bind while neither listens: only listening reserves the port.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        kind = PortTaken if error.errno == errno.EADDRINUSE else Unavailable
        raise kind(_explain(error, host, port, setting)) from error
    except OverflowError:
        listener.close()
        raise Unavailable(f"cannot listen on {host}:{port}: no such port; choose another one with {setting}") from None
    listener.setblocking(False)
    return listener


def _explain(error: OSError, host: str, port: int, setting: str | None) -> str:
    if setting is None or error.errno != errno.EADDRINUSE:
        return f"cannot listen on {host}:{port}: {error.strerror}" + (f". Change {setting}." if setting else "")
    owner = find_port_owner(port) or "another program"
    return f"cannot listen on {host}:{port}: {owner} uses this port. Stop it, or choose another port with {setting}."


def is_port_free(host: str, port: int) -> bool:
    try:
        bind_socket(host, port, setting=None).close()
    except Unavailable:
        return False
    return True


def address_towards(host: str, port: int) -> str:
    """The local address from which `host` is reached. Sends no packet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, _, _, _, target = infos[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return host_name()


def host_name() -> str:
    return socket.gethostname()


def can_connect(host: str, port: int, *, within_s: float = 2.0) -> bool:
    try:
        socket.create_connection((host, port), timeout=within_s).close()
    except OSError:
        return False
    return True
