"""The types of settings values, with their parsers and checks."""

import ipaddress
import os
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from corral.core.backends.gallery_addresses import GalleryAddress, read_gallery_list
from corral.core.durations import parse_duration_s
from corral.core.errors import InvalidInput
from corral.core.nodes.labels import check_labels
from corral.core.sizes import parse_budget_bytes, parse_size_bytes


@dataclass(frozen=True, slots=True)
class LocalAiName:
    """LocalAI's name for the same setting."""

    name: str
    read: Callable[[str], Any] | None = None
    """Converts LocalAI's form of the value to ours, where they differ."""


@dataclass(frozen=True, slots=True)
class AlsoNamed(LocalAiName):
    """A second name of Corral's own."""


def _read_duration(value: Any) -> Any:
    return parse_duration_s(value) if isinstance(value, str) else value


def _check_positive(value: float) -> float:
    if not 0 < value < float("inf"):
        raise ValueError(f"{value:g} is not a positive duration")
    return value


Duration = Annotated[float, BeforeValidator(_read_duration), AfterValidator(_check_positive)]


def split_host_port(text: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`, `:port` (every interface) or `port` (loopback)."""
    host, _, port_text = text.rpartition(":")
    if not host:
        host = "0.0.0.0" if text.startswith(":") else "127.0.0.1"
    host = host.removeprefix("[").removesuffix("]")
    if not port_text.isdigit() or int(port_text) > 65535:
        raise ValueError(f"{text!r} is not an address; use for example 127.0.0.1:8080")
    return host, int(port_text)


def _spell_out(value: str) -> str:
    host, port = split_host_port(value)
    if not port:
        raise ValueError(f"{value!r} has no fixed port; use a port from 1 to 65535")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


HostPort = Annotated[str, AfterValidator(_spell_out)]


def is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_filled(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().strip():
        raise ValueError("is empty; give a value or omit the setting")
    if not value.get_secret_value().isprintable():
        raise ValueError("contains a line break or another control character")
    return value


Secret = Annotated[SecretStr, AfterValidator(_check_filled)]


def _read_labels(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = [item.partition("=") for item in value.split(",") if item.strip()]
    if any(not separator or not key.strip() for key, separator, _ in pairs):
        raise ValueError(f"{value!r} is not a list of labels; use for example tier=fast,room=b2")
    return {key.strip(): text.strip() for key, _, text in pairs}


def _check_labels(value: dict[str, str]) -> dict[str, str]:
    try:
        check_labels(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return value


Labels = Annotated[dict[str, str], BeforeValidator(_read_labels), AfterValidator(_check_labels)]


def _read_names(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


NameList = Annotated[tuple[str, ...], BeforeValidator(_read_names)]


def check_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Checks that every entry with a slash is a network. Raises ValueError."""
    for host in hosts:
        if "/" in host:
            try:
                ipaddress.ip_network(host, strict=False)
            except ValueError:
                raise ValueError(f"{host!r} is neither a host nor a network, such as 10.0.0.0/8") from None
    return hosts


HostList = Annotated[NameList, AfterValidator(check_hosts)]


def _check_networks(networks: tuple[str, ...]) -> tuple[str, ...]:
    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            raise ValueError(f"{network!r} is neither an address nor a network, such as 10.0.0.0/8") from None
    return networks


NetworkList = Annotated[NameList, AfterValidator(_check_networks)]


def _read_mirrors(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {host: (mirrors,) if isinstance(mirrors, str) else mirrors for host, mirrors in value.items()}
    if not isinstance(value, str):
        return value
    found: dict[str, tuple[str, ...]] = {}
    for pair in value.split(","):
        host, _, mirror = (part.strip() for part in pair.partition("="))
        if pair.strip():
            found[host] = (*found.get(host, ()), mirror)
    return found


def _check_mirrors(value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    for name in [*value, *(mirror for mirrors in value.values() for mirror in mirrors)]:
        if not _HOST_AND_PORT.fullmatch(name):
            raise ValueError(f"{name!r} is not a registry host; use for example quay.io=mirror.lan:5000")
    return value


_HOST_AND_PORT = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
MirrorMap = Annotated[dict[str, tuple[str, ...]], BeforeValidator(_read_mirrors), AfterValidator(_check_mirrors)]


def read_logins(secret: SecretStr | None) -> dict[str, tuple[str, str]]:
    """User and password by host, from `quay.io=robot:secret ghcr.io=me:secret` (separated by spaces or lines)."""
    found = {}
    for login in secret.get_secret_value().split() if secret is not None else ():
        host, _, rest = login.partition("=")
        name, colon, password = rest.partition(":")
        if not _HOST_AND_PORT.fullmatch(host) or not name or not colon or not password or not rest.isprintable():
            raise ValueError("is not a list of logins; use for example quay.io=robot:secret ghcr.io=me:secret")
        found[host] = (name, password)
    return found


def _check_logins(secret: SecretStr) -> SecretStr:
    if not read_logins(secret):
        raise ValueError("is empty; give a value or omit the setting")
    return secret


Logins = Annotated[SecretStr, AfterValidator(_check_logins)]


GalleryList = Annotated[tuple[GalleryAddress, ...], BeforeValidator(read_gallery_list)]


def _check_port_range(value: str) -> str:
    first, dash, last = value.partition("-")
    if not dash or not first.isdigit() or not last.isdigit() or not 1 <= int(first) <= int(last) <= 65535:
        raise ValueError(f"{value!r} is not a range of ports; use for example 20000-23999")
    return value


def span_of(text: str) -> range | None:
    """The range `20000-23999`, including its end; None for other text."""
    first, dash, last = text.partition("-")
    if not dash or not first.isdigit() or not last.isdigit():
        return None
    return range(int(first), int(last) + 1)


def _check_user(value: str) -> str:
    """Checks a user name of this machine or a range of user ids. Another user than the worker's requires root."""
    own = os.geteuid()
    user = None
    if span_of(value) is None:
        try:
            user = pwd.getpwnam(value).pw_uid
        except KeyError:
            raise ValueError(f"this machine has no user {value!r}") from None
    if own not in (0, user):
        raise ValueError("only a worker that runs as root can run backends as another user")
    return value


BackendUser = Annotated[str, AfterValidator(_check_user)]


def read_size(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_size_bytes(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from None


def _check_budget(value: str) -> str | None:
    try:
        if value.strip():
            parse_budget_bytes(value, total_bytes=1 << 40)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return value.strip() or None


VramBudget = Annotated[str, AfterValidator(_check_budget)]

PortRange = Annotated[str, AfterValidator(_check_port_range)]


def _check_path_grants(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not value.startswith("/") or value.removesuffix(WRITABLE) in ("", "/"):
            raise ValueError(f"{value!r} is not an absolute path of a file or directory below /")
    return values


WRITABLE = ":rw"
PathGrants = Annotated[NameList, AfterValidator(_check_path_grants)]


def _check_scheme(value: str, *schemes: str) -> None:
    scheme, _, rest = value.partition("://")
    if scheme not in schemes or not rest:
        raise ValueError(f"{redact_url(value)!r} must start with {' or '.join(s + '://' for s in schemes)}")


def _check_store(value: str) -> str:
    _check_scheme(value, "sqlite", "postgresql", "postgres")
    return value


def _check_url(value: str, *schemes: str, example: str) -> str:
    """Checks the scheme, the host and the port. Raises ValueError."""
    _check_scheme(value, *schemes)
    try:
        parts = urlsplit(value)
        is_one = re.fullmatch(r"[^\s,]+", parts.hostname or "") and parts.port != 0
    except ValueError:  # its message names neither the address nor what to do
        is_one = None
    if not is_one:
        raise ValueError(f"{redact_url(value)!r} is not an address; use for example {example}")
    return value


def _check_bus(value: str) -> str:
    urls = (url.strip() for url in value.split(","))
    return ",".join(_check_url(url, "nats", "tls", example="nats://10.0.0.2:4222") for url in urls)


def check_http_url(value: str) -> str:
    """The URL without a trailing slash. Raises ValueError."""
    return _check_url(value, "http", "https", example="http://10.0.0.2:8080").rstrip("/")


StoreUrl = Annotated[str, AfterValidator(_check_store)]
BusUrl = Annotated[str, AfterValidator(_check_bus)]
HttpUrl = Annotated[str, AfterValidator(check_http_url)]


def redact_url(url: str) -> str:
    """The address without user and password, for logs and errors."""
    return re.sub(r"//[^/]*@", "//", url)


def _check_directory(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty; give a directory or omit the setting")
    return value


DataDir = Annotated[Path, BeforeValidator(_check_directory), AfterValidator(lambda path: path.expanduser().absolute())]


def data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "corral"


def config_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "corral"
