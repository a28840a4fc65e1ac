"""What each role can be told."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from corral.core.backends.gallery_addresses import LOCALAI_BACKEND_GALLERY, LOCALAI_MODEL_GALLERY
from corral.settings.values import (
    AlsoNamed,
    BackendUser,
    BusUrl,
    DataDir,
    Duration,
    GalleryList,
    HostList,
    HostPort,
    HttpUrl,
    Labels,
    LocalAiName,
    Logins,
    MirrorMap,
    NameList,
    NetworkList,
    PathGrants,
    PortRange,
    Secret,
    StoreUrl,
    VramBudget,
    data_home,
    read_size,
    span_of,
)


def _host_of(address: str) -> str | None:
    """None of `:50051`, which names a port only."""
    if address.startswith(":"):
        return None
    return address.rpartition(":")[0].strip("[]") or address


def _port_below(address: str) -> int | str:
    """LocalAI names the port of the first backend; its HTTP server, which we name, is the one before."""
    port = address.rpartition(":")[2]
    return int(port) - 1 if port.isdigit() else address


def _log_level(level: str) -> str:
    return {"warn": "warning", "trace": "debug", "fatal": "error"}.get(level.lower(), level.lower())


class RoleSettings(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="forbid", defer_build=True)
    role: ClassVar[str]

    log_level: Annotated[
        str, Field(pattern="^(debug|info|warning|error)$"), LocalAiName("LOCALAI_LOG_LEVEL", _log_level)
    ] = "info"
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


class StorageSettings(RoleSettings):
    """Where frontends and workers hand files to one another, the same for both."""

    storage_url: Annotated[HttpUrl | None, LocalAiName("LOCALAI_STORAGE_URL")] = None
    """S3-compatible storage that frontends and workers share; without it files go over HTTP from one to the other."""
    storage_bucket: Annotated[str, LocalAiName("LOCALAI_STORAGE_BUCKET")] = "localai"
    """Bucket of the shared storage."""
    storage_region: Annotated[str, LocalAiName("LOCALAI_STORAGE_REGION")] = "us-east-1"
    """Region of the shared storage."""
    storage_access_key: Annotated[Secret | None, LocalAiName("LOCALAI_STORAGE_ACCESS_KEY")] = None
    """Access key of the shared storage."""
    storage_secret_key: Annotated[Secret | None, LocalAiName("LOCALAI_STORAGE_SECRET_KEY")] = None
    """Secret key of the shared storage."""


class SourceSettings(RoleSettings):
    """Where backends come from, the same for those who ask for digests and those who fetch."""

    trusted_hosts: HostList = ()
    """Hosts or networks at private addresses that galleries, backends and weights may come from:
    `registry.lan:5000,10.0.0.0/8`."""
    plain_http_hosts: NameList = ()
    """Hosts that may be spoken to without TLS. Loopback always may."""
    registry_mirrors: MirrorMap = Field(default_factory=dict)
    """Registries asked before another one, in order: `quay.io=mirror.lan:5000,docker.io=mirror.lan:5000`."""
    registry_logins: Logins | None = None
    """Logins of registries: `quay.io=robot:secret ghcr.io=me:secret`. They go before docker's in `config.json`."""
    require_digest: bool = False
    """Refuse downloads of backends that neither the reference nor the gallery pins to a digest."""


class FrontendSettings(WatchSettings, StorageSettings, SourceSettings):
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
    trusted_proxies: NetworkList = ()
    """Addresses or networks of proxies in front of this frontend: `127.0.0.1,10.0.0.0/24`. From these, and from nobody
    else, X-Forwarded-For (or, without it, Forwarded) is believed; a proxy must append the caller's address to it or
    replace it. Without this every caller behind a proxy shares one limit on wrong keys."""
    auth: bool = True
    """Ask for API keys. Can be switched off only while listening on loopback; then only this machine's own programs and
    pages are served."""
    auto_approve: Annotated[bool, LocalAiName("LOCALAI_AUTO_APPROVE_NODES")] = False
    """Let machines with the token work without an administrator's approval."""
    worker_jwt_ttl_s: Annotated[Duration, Field(ge=1), LocalAiName("LOCALAI_NATS_WORKER_JWT_TTL")] = 3600.0
    """How long a node's bus credential is valid; it is renewed at three quarters of that."""
    models_dir: Annotated[DataDir | None, LocalAiName("LOCALAI_MODELS_PATH")] = None
    """Weights and model configurations that lie on this frontend's machine. Default: models in the data directory."""
    model_load_wait_s: Annotated[Duration, LocalAiName("LOCALAI_MODEL_LOAD_WAIT")] = 60.0
    """How long a request for a model that is not loaded waits before it is told to come again."""
    request_limit_bytes: Annotated[int, Field(ge=1024)] = 32 << 20
    """Largest body of a request to the OpenAI address: prompts, pictures, sound."""
    requests_per_replica: Annotated[int, Field(ge=1)] = 512
    """Open requests at one replica where it does not tell how many it can work on."""
    queue_limit: Annotated[int, Field(ge=0)] = 1000
    """Requests that may wait for a replica of one model. The next one is told to come again (429)."""
    queue_wait_s: Duration = 60.0
    """How long a request may wait for a replica before it is told to come again (503)."""
    response_timeout_s: Duration = 600.0
    """How long a replica may send nothing before its request is given up (504)."""
    probe_after_s: Duration = 10.0
    """How long a replica may be silent about a request before it is asked for a sign of life. One that gives none loses
    what it has not begun to answer to other replicas."""
    expose_node_header: Annotated[bool, LocalAiName("LOCALAI_EXPOSE_NODE_HEADER")] = False
    """Tell in the headers X-Corral-Node and X-LocalAI-Node which node answered."""
    metrics_public: bool = False
    """Let everyone who reaches this frontend read /metrics. Off: it needs an admin key."""
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """How many processes of this frontend share its port, one for each core that is to serve requests."""
    disconnect_grace_s: Duration = 1800.0
    """A worker that has heard no frontend for this long ends its models: they run elsewhere by then. Until then they
    serve on, so this is also the longest outage of all frontends that no model notices."""
    model_idle_ttl_s: Duration | None = None
    """Unload a model that no scheduling keeps after so long without a request. Default: never."""
    scale_cool_down_s: Duration = 30.0
    """The least time between two changes of a model's number of replicas because of load, and between two tries to
    place what finds no room because machines come and go."""
    scale_down_after_s: Duration = 300.0
    """After how long without a request a replica above a model's minimum is ended."""
    replica_drain_s: Duration = 600.0
    """How long requests that are being answered may keep a replica that has to go: its backend was upgraded, its model
    edited, its machine drained."""
    deleted_model_drain_s: Duration = 60.0
    """The same where its model was deleted or disabled. Streams that are still open then end with an error."""
    orphan_grace_s: Duration = 20.0
    """How long a process that belongs to no replica may run before it is ended: its row may come a moment later."""
    model_scheduling: Annotated[str, LocalAiName("LOCALAI_MODEL_SCHEDULING")] = ""
    """Scheduling to set at every start, as JSON: `[{"model_name": "tiny", "min_replicas": 2}]`."""
    model_scheduling_config: Annotated[Path | None, LocalAiName("LOCALAI_MODEL_SCHEDULING_CONFIG")] = None
    """The same as a YAML file."""
    shared_models: bool = False
    """Every machine sees the same models directory: nothing is copied, and no disk space is asked for."""
    body_limit_bytes: Annotated[int, Field(ge=1024)] = 1 << 20
    """Largest body of an administrative request."""
    connections: Annotated[int | None, Field(ge=16)] = None
    """Most client connections at once, for each process of this frontend. Default, and never more: half of the open
    files the system allows it (`ulimit -n`). Beyond it, idle connections that have shown no key are closed first."""
    connections_per_address: Annotated[int | None, Field(ge=8)] = None
    """Most connections from one address (IPv6: one /64 network); trusted proxies have no such limit. Default: half of
    all connections."""
    audit_retention_s: Duration = 90 * 86400.0
    """How long entries of the audit log are kept."""
    audit_max_entries: Annotated[int, Field(ge=1000)] = 200_000
    """How many entries of the audit log are kept, the newest ones."""
    backend_install_timeout_s: Annotated[Duration, LocalAiName("LOCALAI_NATS_BACKEND_INSTALL_TIMEOUT")] = 900.0
    """How long a worker may take to answer an install before it counts as still running there."""
    backend_upgrade_timeout_s: Annotated[Duration, LocalAiName("LOCALAI_NATS_BACKEND_UPGRADE_TIMEOUT")] = 900.0
    """The same for an upgrade."""
    backend_retry_base_s: Duration = 30.0
    """How long to wait after the first failure on a node; doubles each time."""
    backend_retry_exhausted_s: Duration = 3600.0
    """How long an install or delete whose retries were exhausted rests before it is tried again by itself."""
    backend_retry_max_s: Duration = 900.0
    """The longest wait between two attempts."""
    backend_max_attempts: Annotated[int, Field(ge=1, le=1000)] = 10
    """Failures on one node after which it takes a person to try again."""
    max_concurrent_node_operations: Annotated[int, Field(ge=1, le=4096)] = 256
    """How many nodes this frontend works with at the same time."""
    upgrade_check_interval_s: Duration = 6 * 3600.0
    """How often galleries and registries are asked whether there are newer versions."""
    backend_galleries: Annotated[
        GalleryList, LocalAiName("LOCALAI_BACKEND_GALLERIES"), LocalAiName("BACKEND_GALLERIES")
    ] = (LOCALAI_BACKEND_GALLERY,)
    """Galleries of backends after Corral's own: `name=address,...` or LocalAI's JSON list; empty for none."""
    model_galleries: Annotated[GalleryList, LocalAiName("LOCALAI_GALLERIES"), LocalAiName("GALLERIES")] = (
        LOCALAI_MODEL_GALLERY,
    )
    """Galleries of models after Corral's own, written likewise."""
    gallery_refresh_s: Duration = 3600.0
    """How often galleries are asked for news. What cannot be reached is shown from the copy kept, with its age."""

    @property
    def models_directory(self) -> Path:
        return self.models_dir or self.data_dir / "models"


class WorkerSettings(StorageSettings, SourceSettings):
    role = "worker"

    data_dir: DataDir = Field(default_factory=lambda: data_home() / "worker")
    """Where this machine's identity, backends, models and logs live."""
    join: Annotated[HttpUrl | None, LocalAiName("LOCALAI_REGISTER_TO")] = None
    """Address of a frontend. Remembered in the data directory after the first time."""
    token: Annotated[Secret | None, AlsoNamed("CORRAL_JOIN_TOKEN"), LocalAiName("LOCALAI_REGISTRATION_TOKEN")] = None
    """Registration token, needed the first time only."""
    name: Annotated[str | None, Field(min_length=1, max_length=255), LocalAiName("LOCALAI_NODE_NAME")] = None
    """Name of this node; default is the host name."""
    host: str | None = None
    """Interface to listen on; default is loopback when the frontend is on this machine, else every interface."""
    port: Annotated[
        int | None,
        Field(ge=1, le=65534),
        LocalAiName("LOCALAI_ADDR", _port_below),
        LocalAiName("LOCALAI_SERVE_ADDR", _port_below),
    ] = None
    """Port of this worker's HTTP server; backends use the ones above it. Default: 50050, or the next free one."""
    advertise: Annotated[
        str | None, LocalAiName("LOCALAI_ADVERTISE_ADDR", _host_of), LocalAiName("LOCALAI_ADDR", _host_of)
    ] = None
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
    vram_budget: Annotated[VramBudget | None, LocalAiName("LOCALAI_VRAM_BUDGET")] = None
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
    backend_user: BackendUser | None = None
    """Run backends as this user of the system, or each as a user of its own from a range of numbers nobody else has
    (`200000-203999`, at least as many as there are backend ports). Needs a worker that runs as root. Default: a worker
    that runs as root gives each backend a user of its own; another one runs them as itself."""
    backend_isolation: Literal["auto", "required", "off"] = "auto"
    """Whether backends are kept to their own files, away from keys, other models and other backends: as well as this
    machine can (auto), or they are not started where it cannot (required), or not at all (off)."""
    backend_paths: PathGrants = ()
    """Further files and directories of this machine that backends may read, separated by commas; with `:rw` behind a
    path they may write there too: `/srv/voices,/srv/scratch:rw`."""
    backend_environment: NameList = ()
    """Further environment variables of this worker that backends get to see, separated by commas."""
    backend_restarts: Annotated[int, Field(ge=0, le=1000)] = 5
    """How often a backend process that dies is started again within ten minutes before it is given up as failed."""
    backend_restart_delay_s: Duration = 1.0
    """How long to wait before the first of these restarts; each further one waits twice as long, up to a minute."""
    system_backends_dir: Annotated[Path, LocalAiName("LOCALAI_BACKENDS_SYSTEM_PATH")] = Path(
        "/var/lib/local-ai/backends"
    )
    """Backends that came with the system: used where they are, never upgraded or deleted."""
    download_rate_bytes: Annotated[int | None, Field(ge=1024), BeforeValidator(read_size)] = None
    """The most that is downloaded each second, for example `20MB`; unset means as fast as it comes."""
    keep_versions: Annotated[int, Field(ge=1, le=1000)] = 3
    """Versions of a backend that stay on the disk, the one in use included. A rollback needs an earlier one."""
    files_quota_bytes: Annotated[int | None, Field(ge=1), BeforeValidator(read_size)] = None
    """How much frontends may upload to this machine in total, for example `200GiB`; unset means as the disk allows."""
    disk_headroom_bytes: Annotated[int, Field(ge=0), BeforeValidator(read_size)] = 1 << 30
    """With less than this free on its disk, for example `5GiB`, the node is unhealthy and gets no new models."""

    @model_validator(mode="after")
    def _check_user_range(self) -> Self:
        users, ports = span_of(self.backend_user or ""), span_of(self.backend_ports)
        if users is not None and ports is not None and len(users) < len(ports):
            raise ValueError(
                f"backend_user: {self.backend_user} are fewer users than the {len(ports)} backend ports"
                f" ({self.backend_ports}); each process needs one of its own"
            )
        return self


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
    max_replicas_per_model: Annotated[int | None, Field(ge=1, le=1024)] = None
    """How many replicas of one model this machine may run; default is 1."""
    auto_approve: bool = False
    """Let machines with the token work without an administrator's approval."""
    trusted_proxies: NetworkList = ()
    """Addresses or networks of proxies in front of this frontend: `127.0.0.1,10.0.0.0/24`. From these, and from nobody
    else, X-Forwarded-For (or, without it, Forwarded) is believed; a proxy must append the caller's address to it or
    replace it. Without this every caller behind a proxy shares one limit on wrong keys."""
    auth: bool = True
    """Ask for API keys. Can be switched off only while listening on loopback; then only this machine's own programs and
    pages are served."""
