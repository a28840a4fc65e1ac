"""Checks where a frontend may listen, and derives the addresses under which it is reached."""

from corral.core.errors import InvalidSetting
from corral.settings.values import is_loopback_host, split_host_port
from corral.system.listen import address_towards


def check_exposure(listen: str, *, auth: bool) -> None:
    host, _ = split_host_port(listen)
    if not auth and not is_loopback_host(host):
        raise InvalidSetting(
            f"auth: refusing to serve {listen} without credentials, because other machines could control this one."
            " Remove --no-auth, or listen on 127.0.0.1."
        )


def local_url(listen: str) -> str:
    """The URL for clients on this machine."""
    return f"http://{local_address(listen)}"


def local_address(listen: str, *, port: int | None = None) -> str:
    """`host:port` for clients on this machine, with another port if one is given."""
    host, own = split_host_port(listen)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port or own}" if ":" in host else f"{host}:{port or own}"


def public_url(url: str | None, listen: str) -> str:
    """The URL for clients on other machines."""
    if url is not None:
        return url
    host, port = split_host_port(listen)
    if host in ("0.0.0.0", "::"):
        # An address of the documentation range selects the interface of the default route; nothing is sent.
        host = address_towards("192.0.2.1", 9)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
