"""Settings: one frozen class per role, read once from flags, environment and one TOML file.

A field `heartbeat_interval_s` of the worker is the flag `--heartbeat-interval`, the variable
`CORRAL_HEARTBEAT_INTERVAL` and the key `heartbeat_interval` in the table `[worker]` of the file. Where LocalAI has
the same setting under another name, that name is accepted too. A field's docstring is its help and its line in the
manual. A secret can also be given as a file: `CORRAL_TOKEN_FILE` for `CORRAL_TOKEN`.
"""

import difflib
import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from corral.core.durations import parse_duration_s
from corral.core.errors import InvalidSetting


@dataclass(frozen=True, slots=True)
class LocalAiName:
    """The name LocalAI has for the same setting."""

    name: str


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
        raise ValueError(f"{text!r} is not an address; write for example 127.0.0.1:8080")
    return host, int(port_text)


def _check_host_port(value: str) -> str:
    split_host_port(value)
    return value


HostPort = Annotated[str, AfterValidator(_check_host_port)]


def is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_filled(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().strip():
        raise ValueError("is empty; give a value or leave the setting out")
    return value


Secret = Annotated[SecretStr, AfterValidator(_check_filled)]


def _read_labels(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = [item.partition("=") for item in value.split(",") if item.strip()]
    if any(not separator or not key.strip() for key, separator, _ in pairs):
        raise ValueError(f"{value!r} is not a list of labels; write for example tier=fast,room=b2")
    return {key.strip(): text.strip() for key, _, text in pairs}


Labels = Annotated[dict[str, str], BeforeValidator(_read_labels)]


def _read_names(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


NameList = Annotated[tuple[str, ...], BeforeValidator(_read_names)]


@dataclass(frozen=True, slots=True)
class GallerySource:
    name: str
    url: str
    mirrors: tuple[str, ...] = ()


LOCALAI_MODEL_GALLERIES = (
    GallerySource("localai", "https://index.localai.io/models", ("github:mudler/LocalAI/gallery/index.yaml@master",)),
)


def _read_galleries(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value or "[]")
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(found, list):
        raise ValueError(
            'is not a list of galleries; write for example [{"name": "mine", "url": "https://host/index"}]'
        )
    return tuple(
        {key: value for key, value in item.items() if key in ("name", "url", "mirrors")}
        if isinstance(item, dict)
        else item
        for item in found
    )


Galleries = Annotated[tuple[GallerySource, ...], BeforeValidator(_read_galleries)]


def _check_port_range(value: str) -> str:
    first, dash, last = value.partition("-")
    if not dash or not first.isdigit() or not last.isdigit() or not 1 <= int(first) <= int(last) <= 65535:
        raise ValueError(f"{value!r} is not a range of ports; write for example 20000-23999")
    return value


PortRange = Annotated[str, AfterValidator(_check_port_range)]


def _check_scheme(*schemes: str) -> AfterValidator:
    def check(value: str) -> str:
        for url in value.split(","):
            if url.partition("://")[0] not in schemes or not url.partition("://")[2]:
                raise ValueError(f"{redact_url(value)!r} must start with {' or '.join(s + '://' for s in schemes)}")
        return value

    return AfterValidator(check)


StoreUrl = Annotated[str, _check_scheme("sqlite", "postgresql", "postgres")]
BusUrl = Annotated[str, _check_scheme("nats", "tls")]
HttpUrl = Annotated[str, _check_scheme("http", "https"), AfterValidator(lambda url: url.rstrip("/"))]


def redact_url(url: str) -> str:
    """The address without user and password, fit for logs and errors."""
    return re.sub(r"//[^@/]*@", "//", url)


def _check_directory(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty; name a directory or leave the setting out")
    return value


DataDir = Annotated[Path, BeforeValidator(_check_directory), AfterValidator(lambda path: path.expanduser().absolute())]


def data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "corral"


def config_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "corral"


class RoleSettings(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="forbid")
    role: ClassVar[str]

    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$"), LocalAiName("LOCALAI_LOG_LEVEL")] = "info"
    """How much to log: debug, info, warning or error."""
    log_format: Annotated[str, Field(pattern="^(console|json)$")] = "console"
    """Logs as lines for people (console) or one JSON object a line (json)."""


class WatchSettings(RoleSettings):
    """How machines are watched, the same for a frontend and for `corral up`."""

    heartbeat_interval_s: Annotated[Duration, LocalAiName("LOCALAI_HEARTBEAT_INTERVAL")] = 10.0
    """How often workers are asked to report in."""
    suspect_after_s: Duration = 30.0
    """A node silent for this long gets no new work."""
    offline_after_s: Duration = 60.0
    """A node silent for this long counts as gone; sooner when the bus says that nobody listens for it any more."""
    health_interval_s: Duration = 5.0
    """How often every node's bus link and heartbeat age are looked at."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        """Each next limit must be able to come after the one before it."""
        if self.suspect_after_s < 2 * self.heartbeat_interval_s:
            raise ValueError(
                f"suspect_after ({self.suspect_after_s:g} s) must be at least twice heartbeat_interval"
                f" ({self.heartbeat_interval_s:g} s): one late heartbeat is not silence"
            )
        if self.offline_after_s < self.suspect_after_s:
            raise ValueError(
                f"offline_after ({self.offline_after_s:g} s) must not come before suspect_after"
                f" ({self.suspect_after_s:g} s)"
            )
        return self


class FrontendSettings(WatchSettings):
    role = "frontend"

    data_dir: DataDir = Field(default_factory=lambda: data_home() / "frontend")
    """Where keys, logs and, without PostgreSQL, the database live."""
    listen: Annotated[HostPort, LocalAiName("LOCALAI_ADDRESS")] = "127.0.0.1:8080"
    """Address and port of the API and the web UI."""
    public_url: HttpUrl | None = None
    """The address under which workers and people reach this frontend, when it is not the one it listens on."""
    store: Annotated[StoreUrl | None, LocalAiName("LOCALAI_AUTH_DATABASE_URL")] = None
    """`postgresql://user:password@host/database`, or `sqlite:///path` (default: corral.db in the data directory)."""
    store_connections: Annotated[int, Field(ge=1, le=200)] = 10
    """How many connections to PostgreSQL this frontend may hold."""
    bus: Annotated[BusUrl, LocalAiName("LOCALAI_NATS_URL")] = "nats://127.0.0.1:4222"
    """The message bus, `nats://` or `tls://`; several addresses separated by commas."""
    bus_for_workers: BusUrl | None = None
    """The bus address workers are told, when they reach it under another one than this frontend."""
    bus_account_seed: Annotated[Secret | None, LocalAiName("LOCALAI_NATS_ACCOUNT_SEED")] = None
    """Signing seed (SA...) of the bus account; from it every node gets credentials of its own."""
    bus_operator_seed: Secret | None = None
    """Operator seed (SO...); with the system seed, a removed node is cut off the bus at once, not at expiry."""
    bus_system_seed: Secret | None = None
    """Seed (SA...) of the bus's system account."""
    bus_ca_file: Path | None = None
    """Certificate authority that signed the bus's TLS certificate."""
    insecure_anonymous_bus: bool = False
    """Use a bus without credentials. Everyone who reaches it can command every machine. For experiments only."""
    registration_token: Annotated[Secret | None, LocalAiName("LOCALAI_REGISTRATION_TOKEN")] = None
    """Token machines present to join. Made at first start and kept in the data directory when not given."""
    local_token: Secret | None = None
    """Registration token for workers that need no approval, such as the one `corral up` starts itself."""
    admin_key: Secret | None = None
    """An admin API key to accept from the first start on. Made and kept in the data directory when not given."""
    auth: bool = True
    """Ask for API keys. Can be switched off only while listening on loopback."""
    auto_approve: Annotated[bool, LocalAiName("LOCALAI_AUTO_APPROVE_NODES")] = False
    """Let machines with the token work without an administrator's approval."""
    worker_jwt_ttl_s: Annotated[Duration, LocalAiName("LOCALAI_NATS_WORKER_JWT_TTL")] = 3600.0
    """How long a node's bus credential is valid; it is renewed at three quarters of that."""
    models_dir: Annotated[DataDir | None, LocalAiName("LOCALAI_MODELS_PATH")] = None
    """Weights and model configurations that lie on this frontend's machine. Default: models in the data directory."""
    model_galleries: Annotated[Galleries, LocalAiName("LOCALAI_GALLERIES")] = LOCALAI_MODEL_GALLERIES
    """Galleries of models beside Corral's own, as JSON: `[{"name": "mine", "url": "https://host/index.yaml"}]`."""
    trusted_hosts: NameList = ()
    """Hosts or networks at private addresses that galleries may be read from: `gallery.lan:8000,10.0.0.0/8`."""
    plain_http_hosts: NameList = ()
    """Hosts that galleries may be read from without TLS."""
    model_load_wait_s: Annotated[Duration, LocalAiName("LOCALAI_MODEL_LOAD_WAIT")] = 60.0
    """How long a request for a model that is not loaded waits before it is told to come again."""
    model_idle_ttl_s: Duration | None = None
    """Unload a model that no scheduling keeps after so long without a request. Default: never."""
    model_scheduling: Annotated[str, LocalAiName("LOCALAI_MODEL_SCHEDULING")] = ""
    """Scheduling to set at every start, as JSON: `[{"model_name": "tiny", "min_replicas": 2}]`."""
    model_scheduling_config: Annotated[Path | None, LocalAiName("LOCALAI_MODEL_SCHEDULING_CONFIG")] = None
    """The same as a YAML file."""
    shared_models: bool = False
    """Every machine sees the same models directory: nothing is copied, and no disk space is asked for."""
    body_limit_bytes: Annotated[int, Field(ge=1024)] = 1 << 20
    """Largest body of an administrative request."""

    @property
    def models_directory(self) -> Path:
        return self.models_dir or self.data_dir / "models"


class WorkerSettings(RoleSettings):
    role = "worker"

    data_dir: DataDir = Field(default_factory=lambda: data_home() / "worker")
    """Where this machine's identity, backends, models and logs live."""
    join: Annotated[HttpUrl | None, LocalAiName("LOCALAI_REGISTER_TO")] = None
    """Address of a frontend. Remembered in the data directory after the first time."""
    token: Annotated[Secret | None, LocalAiName("LOCALAI_REGISTRATION_TOKEN")] = None
    """Registration token, needed the first time only."""
    name: Annotated[str | None, Field(min_length=1, max_length=255), LocalAiName("LOCALAI_NODE_NAME")] = None
    """Name of this node; default is the host name."""
    host: str | None = None
    """Interface to listen on; default is loopback when the frontend is on this machine, else every interface."""
    port: Annotated[int | None, Field(ge=1, le=65534)] = None
    """Port of this worker's HTTP server; backends use the ones above it. Default: 50050, or the next free one."""
    advertise: str | None = None
    """Host name or address under which the frontends reach this machine; default is found by itself."""
    bus: Annotated[BusUrl | None, LocalAiName("LOCALAI_NATS_URL")] = None
    """Message bus address, when the frontend's answer does not tell it or is not reachable from here."""
    bus_ca_file: Path | None = None
    """Certificate authority that signed the bus's TLS certificate."""
    insecure_anonymous_bus: bool = False
    """Connect to a bus without credentials when the frontend hands out none. For experiments only."""
    labels: Annotated[Labels, LocalAiName("LOCALAI_NODE_LABELS")] = Field(default_factory=dict)
    """Labels this machine reports, for selectors: `tier=fast,room=b2`. An administrator's labels go first."""
    max_replicas_per_model: Annotated[int, Field(ge=1, le=1024), LocalAiName("LOCALAI_MAX_REPLICAS_PER_MODEL")] = 1
    """How many replicas of one model this machine may run."""
    vram_budget: Annotated[str | None, LocalAiName("LOCALAI_VRAM_BUDGET")] = None
    """How much GPU memory Corral may use here: `80%`, `12GB`, `12GiB`."""
    capability: Annotated[str | None, LocalAiName("LOCALAI_FORCE_META_BACKEND_CAPABILITY")] = None
    """Overrides the detected capability (for example `nvidia-cuda-12`)."""
    heartbeat_interval_s: Annotated[Duration | None, LocalAiName("LOCALAI_HEARTBEAT_INTERVAL")] = None
    """How often to report in; default is what the frontend asks for."""
    drain_timeout_s: Duration = 30.0
    """How long a stop waits for requests in flight."""
    keep_backends: bool = True
    """Leave backends serving when this worker is stopped, for the next one to take over. Off: stop them too."""
    backend_ports: PortRange = "20000-23999"
    """Ports backends may listen on. Those this machine hands out to outgoing connections are left out."""
    backend_user: str | None = None
    """Run backends as this user of the system; needs a worker that runs as root."""
    backend_environment: NameList = ()
    """Further environment variables of this worker that backends get to see, separated by commas."""
    trusted_hosts: NameList = ()
    """Hosts or networks at private addresses that backends may be fetched from: `registry.lan:5000,10.0.0.0/8`."""
    plain_http_hosts: NameList = ()
    """Hosts that backends may be fetched from without TLS."""
    storage_url: Annotated[HttpUrl | None, LocalAiName("LOCALAI_STORAGE_URL")] = None
    """S3-compatible storage shared with the frontends; without it files come over HTTP."""
    storage_bucket: Annotated[str, LocalAiName("LOCALAI_STORAGE_BUCKET")] = "localai"
    """Bucket of the shared storage."""
    storage_region: Annotated[str, LocalAiName("LOCALAI_STORAGE_REGION")] = "us-east-1"
    """Region of the shared storage."""
    storage_access_key: Annotated[Secret | None, LocalAiName("LOCALAI_STORAGE_ACCESS_KEY")] = None
    """Access key of the shared storage."""
    storage_secret_key: Annotated[Secret | None, LocalAiName("LOCALAI_STORAGE_SECRET_KEY")] = None
    """Secret key of the shared storage."""


class UpSettings(WatchSettings):
    role = "up"

    data_dir: DataDir = Field(default_factory=data_home)
    """The one directory for data, keys and logs."""
    listen: HostPort = "127.0.0.1:8080"
    """Address and port of the API and the web UI. On an address other machines reach, the bus listens there too."""
    bus_port: Annotated[int, Field(ge=1, le=65535)] = 4222
    """Port of the embedded message bus."""
    public_url: HttpUrl | None = None
    """The address under which other machines reach this one, when it is not the one listened on."""
    name: Annotated[str | None, Field(min_length=1, max_length=255)] = None
    """Name of this machine's node; default is the host name."""
    auto_approve: bool = False
    """Let machines with the token work without an administrator's approval."""
    auth: bool = True
    """Ask for API keys. Can be switched off only while listening on loopback."""


ROLES = ("up", "frontend", "worker")
"""The tables a settings file may have."""

Role = TypeVar("Role", bound=RoleSettings)


def setting_key(field: str) -> str:
    """The name without its unit: what flags, variables and the file use."""
    return re.sub(r"_(s|bytes)$", "", field)


def environment_names(field: str, info: FieldInfo) -> list[str]:
    localai = [item.name for item in info.metadata if isinstance(item, LocalAiName)]
    return ["CORRAL_" + setting_key(field).upper(), *localai]


def is_secret(info: FieldInfo) -> bool:
    return "SecretStr" in str(info.annotation)


def _read_environment(cls: type[RoleSettings], environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for field, info in cls.model_fields.items():
        for name in environment_names(field, info):
            if name in environ:
                found[field] = (environ[name], name)
                break
            if is_secret(info) and name + "_FILE" in environ:
                path = Path(environ[name + "_FILE"])
                try:
                    found[field] = (path.read_text().strip(), name + "_FILE")
                except OSError as error:
                    raise InvalidSetting(f"{name}_FILE: cannot read {path}: {error.strerror}") from error
                break
    return found


def _read_file(cls: type[RoleSettings], path: Path | None) -> dict[str, tuple[Any, str]]:
    if path is None:
        path = config_home() / "corral.toml"
        if not path.exists():
            return {}
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidSetting(f"cannot read the settings file {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"the settings file {path} is not TOML: {error}") from error
    unknown = [table for table in document if table not in ROLES]
    if unknown:
        raise InvalidSetting(f"{path}: there is no table [{unknown[0]}]; the tables are {', '.join(ROLES)}")
    fields = {setting_key(field): field for field in cls.model_fields}
    found: dict[str, tuple[Any, str]] = {}
    for key, value in document.get(cls.role, {}).items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidSetting(f"{path}: [{cls.role}] has no setting {key!r}{hint}")
        found[fields[key]] = (value, f"{key} in [{cls.role}] of {path}")
    return found


def load_settings(
    cls: type[Role],
    *,
    flags: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Role:
    """Flags over environment over file over defaults. A value that does not fit stops the start, by name."""
    found: dict[str, tuple[Any, str]] = {}
    found.update(_read_file(cls, file))
    found.update(_read_environment(cls, environ))
    found.update(
        {
            field: (value, "--" + setting_key(field).replace("_", "-"))
            for field, value in flags.items()
            if value is not None
        }
    )
    try:
        return cls.model_validate({field: value for field, (value, _) in found.items()})
    except ValidationError as error:
        raise InvalidSetting(_describe(error, found)) from None


def _describe(error: ValidationError, found: Mapping[str, tuple[Any, str]]) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        if not problem["loc"]:
            lines.append(problem["msg"].removeprefix("Value error, "))
            continue
        field = str(problem["loc"][0])
        _, origin = found.get(field, (None, setting_key(field)))
        lines.append(f"{origin}: {problem['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)
