"""What may be reached from where."""

from corral.core.errors import InvalidSetting
from corral.settings import is_loopback_host, split_host_port


def check_exposure(listen: str, *, auth: bool) -> None:
    host, _ = split_host_port(listen)
    if not auth and not is_loopback_host(host):
        raise InvalidSetting(
            f"auth: refusing to serve {listen} without credentials, where other machines could command this one."
            " Leave out --no-auth, or listen on 127.0.0.1."
        )
