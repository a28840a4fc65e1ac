"""The settings of each role. A docstring of a field is its help text."""

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
    """The host of an address; None for `:50051`, which has only a port."""
    if address.startswith(":"):
        return None
    return address.rpartition(":")[0].strip("[]") or address


def _port_below(address: str) -> int | str:
    """LocalAI sets the port of the first backend; the worker's HTTP server, which Corral sets, uses the one below."""
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
    """Log level: debug, info, warning or error."""
    log_format: Annotated[str, Field(pattern="^(console|json)$")] = "console"
    """Log format: console (readable lines) or json (one JSON object per line)."""


class WatchSettings(RoleSettings):
    """Health checks of nodes, the same for a frontend and for `corral up`."""

    heartbeat_interval_s: Annotated[Duration, LocalAiName("LOCALAI_HEARTBEAT_INTERVAL")] = 10.0
    """Interval of worker heartbeats."""
    suspect_after_s: Duration = 30.0
    """A node without a heartbeat for this long is suspect and gets no new work."""
    offline_after_s: Duration = 60.0
    """A node without a heartbeat for this long is offline; sooner if the bus reports that its worker disconnected."""
    health_interval_s: Duration = 5.0
    """Interval of health checks: each node's bus connection and the age of its heartbeat."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        """Checks that heartbeat_interval, suspect_after and offline_after are in this order."""
        if self.suspect_after_s < 2 * self.heartbeat_interval_s:
            raise ValueError(
                f"suspect_after ({self.suspect_after_s:g} s) must be at least twice heartbeat_interval"
                f" ({self.heartbeat_interval_s:g} s), so that one late heartbeat does not make a node suspect"
            )
        if self.offline_after_s < self.suspect_after_s:
            raise ValueError(
                f"offline_after ({self.offline_after_s:g} s) must not be less than suspect_after"
                f" ({self.suspect_after_s:g} s)"
            )
        return self


class StorageSettings(RoleSettings):
    """The shared storage for files, the same for frontends and workers."""

    storage_url: Annotated[HttpUrl | None, LocalAiName("LOCALAI_STORAGE_URL")] = None
    """S3-compatible storage that frontends and workers share. Default: files are sent over HTTP."""
    storage_bucket: Annotated[str, LocalAiName("LOCALAI_STORAGE_BUCKET")] = "localai"
    """Bucket of the shared storage."""
    storage_region: Annotated[str, LocalAiName("LOCALAI_STORAGE_REGION")] = "us-east-1"
    """Region of the shared storage."""
    storage_access_key: Annotated[Secret | None, LocalAiName("LOCALAI_STORAGE_ACCESS_KEY")] = None
    """Access key of the shared storage."""
    storage_secret_key: Annotated[Secret | None, LocalAiName("LOCALAI_STORAGE_SECRET_KEY")] = None
    """Secret key of the shared storage."""


class SourceSettings(RoleSettings):
    """The sources of backends, the same for frontends, which resolve digests, and workers, which download."""

    trusted_hosts: HostList = ()
    """Hosts or networks with private addresses from which galleries, backends and weights may be downloaded:
    `registry.lan:5000,10.0.0.0/8`."""
    plain_http_hosts: NameList = ()
    """Hosts that may be used over plain HTTP, without TLS. Loopback is always allowed."""
    registry_mirrors: MirrorMap = Field(default_factory=dict)
    """Mirrors to try before a registry, in order: `quay.io=mirror.lan:5000,docker.io=mirror.lan:5000`."""
    registry_logins: Logins | None = None
    """Registry credentials: `quay.io=robot:secret ghcr.io=me:secret`. They override those in Docker's `config.json`."""
    require_digest: bool = False
    """Reject backend downloads that neither the reference nor the gallery pins to a digest."""
    pythons: NameList = ("python3.14", "python3.13", "python3.12", "python3.11", "python3.10")
    """Where to look for a Python for engines that do not support Corral's own: names on the `PATH`, programs, or
    directories that contain `python3.N`. The newest that fits is used."""


class FrontendSettings(WatchSettings, StorageSettings, SourceSettings):
    role = "frontend"

    data_dir: DataDir = Field(default_factory=lambda: data_home() / "frontend")
    """Directory of keys, logs and (without PostgreSQL) the database."""
    listen: Annotated[HostPort, LocalAiName("LOCALAI_ADDRESS")] = "127.0.0.1:8080"
    """Address and port of the API and the web UI."""
    public_url: HttpUrl | None = None
    """The URL at which workers and users reach this frontend, if it differs from the listen address."""
    store: Annotated[StoreUrl | None, LocalAiName("LOCALAI_AUTH_DATABASE_URL")] = None
    """The database: `postgresql://user:password@host/database` or `sqlite:///path`. Default: corral.db in the data
    directory."""
    store_connections: Annotated[int, Field(ge=1, le=200)] = 10
    """Maximum number of PostgreSQL connections of this frontend."""
    bus: Annotated[BusUrl, LocalAiName("LOCALAI_NATS_URL")] = "nats://127.0.0.1:4222"
    """Address of the message bus, `nats://` or `tls://`; several are separated by commas."""
    bus_for_workers: BusUrl | None = None
    """Bus address for workers, if it differs from the one this frontend uses."""
    bus_account_seed: Annotated[Secret | None, LocalAiName("LOCALAI_NATS_ACCOUNT_SEED")] = None
    """Signing seed (SA...) of the bus account, used to issue each node's own bus credentials."""
    bus_operator_seed: Secret | None = None
    """Operator seed (SO...) of the bus. With the system seed, a removed node is disconnected from the bus immediately,
    instead of when its credentials expire."""
    bus_system_seed: Secret | None = None
    """Seed (SA...) of the bus's system account; see bus_operator_seed."""
    bus_ca_file: Path | None = None
    """Certificate authority that signed the bus's TLS certificate."""
    insecure_anonymous_bus: bool = False
    """Use a bus without credentials. Everyone who can reach it can control every node. For experiments only."""
    registration_token: Annotated[Secret | None, LocalAiName("LOCALAI_REGISTRATION_TOKEN")] = None
    """Token that workers present to join. Default: created at the first start and stored in the data directory."""
    local_token: Secret | None = None
    """Registration token for workers that need no approval, such as the worker of `corral up`."""
    admin_key: Secret | None = None
    """Admin API key. Default: created at the first start and stored in the data directory."""
    trusted_proxies: NetworkList = ()
    """Addresses or networks of proxies in front of this frontend: `127.0.0.1,10.0.0.0/24`. The header
    X-Forwarded-For (or, without it, Forwarded) is accepted only from these; a proxy must append the client's address or
    replace it. Without this setting, all clients behind a proxy share one limit on wrong keys."""
    auth: bool = True
    """Require API keys. Can be turned off only when listening on loopback; then only requests from this machine
    are accepted."""
    auto_approve: Annotated[bool, LocalAiName("LOCALAI_AUTO_APPROVE_NODES")] = False
    """Accept nodes with the registration token without an administrator's approval."""
    worker_jwt_ttl_s: Annotated[Duration, Field(ge=1), LocalAiName("LOCALAI_NATS_WORKER_JWT_TTL")] = 3600.0
    """Lifetime of a node's bus credential. It is renewed after three quarters of it."""
    models_dir: Annotated[DataDir | None, LocalAiName("LOCALAI_MODELS_PATH")] = None
    """Directory of weights and model configurations on this machine. Default: models in the data directory."""
    model_load_wait_s: Annotated[Duration, LocalAiName("LOCALAI_MODEL_LOAD_WAIT")] = 60.0
    """How long a request waits for its model to load before it is rejected with 503."""
    load_notice_interval_s: Duration | None = None
    """Send streaming clients a comment (server-sent events) at this interval while their model is loaded, so that
    neither they nor proxies time out. Such an answer has begun: if the load fails, it ends with an error event instead
    of status 503. Default: no comments."""
    stop_wait_s: Annotated[Duration, Field(le=3600)] = 30.0
    """How long open requests may go on after the frontend was told to stop (SIGTERM). New ones are refused with 503
    meanwhile. Requests that have not ended by then break off."""
    request_limit_bytes: Annotated[int, Field(ge=1024), BeforeValidator(read_size)] = 32 << 20
    """Maximum body size of a request to the OpenAI API (prompts, images, audio), for example `64MiB`."""
    requests_per_replica: Annotated[int, Field(ge=1)] = 512
    """Maximum open requests per replica, if the replica does not report its own limit."""
    queue_limit: Annotated[int, Field(ge=0)] = 1000
    """Maximum requests waiting for a replica of one model. Further requests are rejected with 429."""
    queue_wait_s: Duration = 60.0
    """How long a request waits for a replica before it is rejected with 503."""
    response_timeout_s: Duration = 600.0
    """How long a replica may send nothing before its request fails with 504."""
    probe_after_s: Duration = 10.0
    """How long a replica may send nothing for a request before it is health-probed. If the probe fails, unstarted
    requests are rerouted to other replicas."""
    cors_origin: Annotated[str, Field(pattern=r"^(\*|https?://[A-Za-z0-9.:\[\]-]{1,255})?$")] = ""
    """Origin of web pages that may call the client APIs from a browser: `https://app.example`, or `*` for every page.
    A page needs a key of its own; browser sessions of Corral's own UI are not accepted from others. Default: none."""
    expose_node_header: Annotated[bool, LocalAiName("LOCALAI_EXPOSE_NODE_HEADER")] = False
    """Name the node that answered in the headers X-Corral-Node and X-LocalAI-Node."""
    metrics_public: bool = False
    """Serve /metrics without an API key. Off: it requires an admin key."""
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of frontend processes that share the port. Use one per CPU core that should serve requests."""
    disconnect_grace_s: Duration = 1800.0
    """How long a worker that is disconnected from all frontends keeps its replicas running. After that it stops them,
    because other nodes run replacements by then. This is also the longest frontend outage that replicas survive."""
    model_idle_ttl_s: Duration | None = None
    """Unload an on-demand model after this long without a request. Default: never."""
    scale_cool_down_s: Duration = 30.0
    """Minimum time between two load-based changes of a model's replicas, and between two placement attempts caused by
    nodes that join or leave."""
    scale_down_after_s: Duration = 300.0
    """Stop a replica above the model's minimum after this long without a request."""
    replica_drain_s: Duration = 600.0
    """How long a replica may finish its open requests before it is stopped, after its backend was upgraded, its model
    was edited or its node was drained."""
    deleted_model_drain_s: Duration = 60.0
    """How long a replica may finish its open requests after its model was deleted or disabled. Open streams then end
    with an error."""
    orphan_grace_s: Duration = 20.0
    """How long a process without a replica record may run before it is stopped as an orphan. The record may be
    written after the process was started."""
    model_scheduling: Annotated[str, LocalAiName("LOCALAI_MODEL_SCHEDULING")] = ""
    """Model scheduling to apply at every start, as JSON: `[{"model_name": "tiny", "min_replicas": 2}]`."""
    model_scheduling_config: Annotated[Path | None, LocalAiName("LOCALAI_MODEL_SCHEDULING_CONFIG")] = None
    """Model scheduling to apply at every start, as a YAML file."""
    shared_models: bool = False
    """All nodes share one models directory: weights are not copied, and no disk space is reserved for them."""
    body_limit_bytes: Annotated[int, Field(ge=1024), BeforeValidator(read_size)] = 1 << 20
    """Maximum body size of an admin API request."""
    connections: Annotated[int | None, Field(ge=16)] = None
    """Maximum client connections per frontend process. Default and upper limit: half of the open files that the system
    allows (`ulimit -n`). At the limit, idle connections without a valid key are closed first."""
    connections_per_address: Annotated[int | None, Field(ge=8)] = None
    """Maximum connections from one address (IPv6: one /64 network), except trusted proxies. Default: half of
    `connections`."""
    audit_retention_s: Duration = 90 * 86400.0
    """How long audit log entries are kept."""
    audit_max_entries: Annotated[int, Field(ge=1000)] = 200_000
    """Maximum number of audit log entries; the oldest are removed first."""
    backend_install_timeout_s: Annotated[Duration, LocalAiName("LOCALAI_NATS_BACKEND_INSTALL_TIMEOUT")] = 900.0
    """How long to wait for a worker's answer to an install before the install is shown as unconfirmed."""
    backend_upgrade_timeout_s: Annotated[Duration, LocalAiName("LOCALAI_NATS_BACKEND_UPGRADE_TIMEOUT")] = 900.0
    """How long to wait for a worker's answer to an upgrade before the upgrade is shown as unconfirmed."""
    backend_retry_base_s: Duration = 30.0
    """Wait after the first failure on a node; doubles with each further failure."""
    backend_retry_exhausted_s: Duration = 3600.0
    """Wait after all retries of an install or delete are exhausted, before it is retried automatically."""
    backend_retry_max_s: Duration = 900.0
    """Maximum wait between two attempts."""
    backend_max_attempts: Annotated[int, Field(ge=1, le=1000)] = 10
    """Number of failures on a node after which retries are exhausted."""
    rollout_strategy: Annotated[str, Field(pattern="^(auto|all|waves|canary)$")] = "auto"
    """How versions change where neither the command nor the policy says it: `all` nodes at once, in `waves`, or
    `canary`, which stops after the first wave until someone promotes it. `auto`: waves for more than 3 nodes."""
    rollout_soak_s: Duration = 60.0
    """How long a wave is watched before the next one begins."""
    rollout_wave_timeout_s: Duration = 1800.0
    """A wave goes on without nodes that are not done after so long, also because of a slow download, if others have the
    version. If none has, another node stands in for them."""
    rollout_max_error_increase: Annotated[float, Field(ge=0, le=1)] = 0.02
    """By how much the share of failed requests may grow with a new version: 0.02 is two of a hundred."""
    rollout_max_first_token_ratio: Annotated[float, Field(ge=1, le=1000)] = 1.5
    """How many times as long as before a new version may take to the first token."""
    rollout_first_token_slack_s: Duration = 0.03
    """A time to the first token that grew by no more than this fails no gate, whatever the ratio."""
    rollout_min_throughput_ratio: Annotated[float, Field(ge=0, le=1)] = 0.67
    """The share of the previous tokens per second that a new version must reach."""
    rollout_answer_slack_s: Duration = 0.03
    """Answers that take no more than this longer, on average, fail no gate, whatever the tokens per second."""
    rollout_max_memory_ratio: Annotated[float, Field(ge=1, le=1000)] = 1.3
    """How many times as much memory as before a new version may use."""
    rollout_memory_slack_bytes: Annotated[int, Field(ge=0, le=1 << 50), BeforeValidator(read_size)] = 128 << 20
    """Memory that grew by no more than this fails no gate, whatever the ratio."""
    rollout_min_requests: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """With fewer requests to either version, a gate that compares them is not judged."""
    rollout_min_errors: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """Fewer failed requests than this fail no gate."""
    rollout_look_back_s: Duration = 24 * 3600.0
    """Where the previous version has too few requests since the rollout began, those from this long before it count
    too: between a minute and three days."""
    rollout_unjudged: Annotated[str, Field(pattern="^(pass|fail)$")] = "pass"
    """Whether a gate that cannot be judged, for example for want of requests, counts as passed or as failed."""
    max_concurrent_node_operations: Annotated[int, Field(ge=1, le=4096)] = 256
    """Maximum number of nodes that this frontend runs operations on at the same time."""
    upgrade_check_interval_s: Duration = 6 * 3600.0
    """Interval of upgrade checks in galleries and registries."""
    backend_galleries: Annotated[
        GalleryList, LocalAiName("LOCALAI_BACKEND_GALLERIES"), LocalAiName("BACKEND_GALLERIES")
    ] = (LOCALAI_BACKEND_GALLERY,)
    """Backend galleries in addition to Corral's own: `name=address,...` or LocalAI's JSON list; empty for none."""
    model_galleries: Annotated[GalleryList, LocalAiName("LOCALAI_GALLERIES"), LocalAiName("GALLERIES")] = (
        LOCALAI_MODEL_GALLERY,
    )
    """Model galleries in addition to Corral's own, in the same form."""
    gallery_refresh_s: Duration = 3600.0
    """Refresh interval of galleries. For a gallery that cannot be reached, the last copy is shown with its age."""

    @property
    def models_directory(self) -> Path:
        return self.models_dir or self.data_dir / "models"


class WorkerSettings(StorageSettings, SourceSettings):
    role = "worker"

    data_dir: DataDir = Field(default_factory=lambda: data_home() / "worker")
    """Directory of this node's identity, backends, models and logs."""
    join: Annotated[HttpUrl | None, LocalAiName("LOCALAI_REGISTER_TO")] = None
    """Address of a frontend. Stored in the data directory after the first time."""
    token: Annotated[Secret | None, AlsoNamed("CORRAL_JOIN_TOKEN"), LocalAiName("LOCALAI_REGISTRATION_TOKEN")] = None
    """Registration token, needed the first time only."""
    name: Annotated[str | None, Field(min_length=1, max_length=255), LocalAiName("LOCALAI_NODE_NAME")] = None
    """Name of this node. Default: the host name."""
    host: str | None = None
    """Address to listen on. Default: loopback if the frontend is on this machine, otherwise all interfaces."""
    port: Annotated[
        int | None,
        Field(ge=1, le=65534),
        LocalAiName("LOCALAI_ADDR", _port_below),
        LocalAiName("LOCALAI_SERVE_ADDR", _port_below),
    ] = None
    """Port of this worker's HTTP server. Default: 50050, or the next free one."""
    advertise: Annotated[
        str | None, LocalAiName("LOCALAI_ADVERTISE_ADDR", _host_of), LocalAiName("LOCALAI_ADDR", _host_of)
    ] = None
    """Host name or address at which frontends reach this machine. Default: detected automatically."""
    bus: Annotated[BusUrl | None, LocalAiName("LOCALAI_NATS_URL")] = None
    """Address of the message bus, if it differs from the one that the frontend announces."""
    bus_ca_file: Path | None = None
    """Certificate authority that signed the bus's TLS certificate."""
    insecure_anonymous_bus: bool = False
    """Connect to a bus without credentials if the frontend issues none. For experiments only."""
    labels: Annotated[Labels, LocalAiName("LOCALAI_NODE_LABELS")] = Field(default_factory=dict)
    """Labels of this node, for selectors: `tier=fast,room=b2`. Labels set by an administrator override them."""
    max_replicas_per_model: Annotated[int, Field(ge=1, le=1024), LocalAiName("LOCALAI_MAX_REPLICAS_PER_MODEL")] = 1
    """Maximum replicas of one model on this node."""
    vram_budget: Annotated[VramBudget | None, LocalAiName("LOCALAI_VRAM_BUDGET")] = None
    """GPU memory that Corral may use on this node: `80%` or `12GiB`. Default: all."""
    capability: Annotated[str | None, LocalAiName("LOCALAI_FORCE_META_BACKEND_CAPABILITY")] = None
    """Capability of this node, for example `nvidia-cuda-12`. Default: detected automatically."""
    heartbeat_interval_s: Annotated[Duration | None, LocalAiName("LOCALAI_HEARTBEAT_INTERVAL")] = None
    """Interval of heartbeats. Default: as set on the frontend."""
    drain_timeout_s: Duration = 30.0
    """How long a worker that stops waits for requests in flight."""
    keep_backends: bool = True
    """Keep backends running when this worker stops, so that the next one takes them over. Off: stop them too."""
    backend_ports: PortRange = "20000-23999"
    """Ports for backends. Ports in the system's range for outgoing connections are skipped."""
    backend_user: BackendUser | None = None
    """System user that runs backends, or a range of unused user ids (`200000-203999`, at least one per backend port)
    from which each backend gets its own. Requires a worker that runs as root. Default: a worker that runs as root gives
    each backend its own user id; another worker runs them as its own user."""
    backend_isolation: Literal["auto", "required", "off"] = "auto"
    """Restrict backends to their own files, without access to keys, other models and other backends. auto: as far as
    this machine supports it; required: do not start backends without it; off: no isolation."""
    backend_paths: PathGrants = ()
    """More files and directories that backends may read, separated by commas; `:rw` after a path also allows writes:
    `/srv/voices,/srv/scratch:rw`."""
    backend_environment: NameList = ()
    """More environment variables of this worker to pass to backends, separated by commas."""
    backend_restarts: Annotated[int, Field(ge=0, le=1000)] = 5
    """Maximum restarts of a backend process that exits, within ten minutes. After that its replica has failed."""
    backend_restart_delay_s: Duration = 1.0
    """Wait before the first restart; doubles with each further restart, up to one minute."""
    system_backends_dir: Annotated[Path, LocalAiName("LOCALAI_BACKENDS_SYSTEM_PATH")] = Path(
        "/var/lib/local-ai/backends"
    )
    """Directory of backends that are part of the system. They are used in place, never upgraded or deleted."""
    download_rate_bytes: Annotated[int | None, Field(ge=1024), BeforeValidator(read_size)] = None
    """Maximum download rate per second, for example `20MiB`. Default: unlimited."""
    keep_versions: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of versions of a backend to keep on disk, including the current one. A rollback needs an earlier one."""
    files_quota_bytes: Annotated[int | None, Field(ge=1), BeforeValidator(read_size)] = None
    """Maximum total size of files that frontends upload to this node, for example `200GiB`. Default: unlimited."""
    disk_headroom_bytes: Annotated[int, Field(ge=0), BeforeValidator(read_size)] = 1 << 30
    """Free disk space, for example `5GiB`, below which the node is unhealthy and gets no new models."""

    @model_validator(mode="after")
    def _check_user_range(self) -> Self:
        users, ports = span_of(self.backend_user or ""), span_of(self.backend_ports)
        if users is not None and ports is not None and len(users) < len(ports):
            raise ValueError(
                f"backend_user: {self.backend_user} has fewer user ids than there are backend ports ({len(ports)}:"
                f" {self.backend_ports}); each process needs its own"
            )
        return self


class UpSettings(WatchSettings):
    role = "up"

    data_dir: DataDir = Field(default_factory=data_home)
    """Directory of all data, keys and logs."""
    listen: HostPort = "127.0.0.1:8080"
    """Address and port of the API and the web UI. The message bus listens on the same address."""
    bus_port: Annotated[int, Field(ge=1, le=65535)] = 4222
    """Port of the embedded message bus."""
    public_url: HttpUrl | None = None
    """The URL at which other machines reach this frontend, if it differs from the listen address."""
    name: Annotated[str | None, Field(min_length=1, max_length=255)] = None
    """Name of this machine's node. Default: the host name."""
    max_replicas_per_model: Annotated[int | None, Field(ge=1, le=1024)] = None
    """Maximum replicas of one model on this node. Default: 1."""
    auto_approve: bool = False
    """Accept nodes with the registration token without an administrator's approval."""
    trusted_proxies: NetworkList = ()
    """Addresses or networks of proxies in front of this frontend: `127.0.0.1,10.0.0.0/24`. The header
    X-Forwarded-For (or, without it, Forwarded) is accepted only from these; a proxy must append the client's address or
    replace it. Without this setting, all clients behind a proxy share one limit on wrong keys."""
    auth: bool = True
    """Require API keys. Can be turned off only when listening on loopback; then only requests from this machine
    are accepted."""
