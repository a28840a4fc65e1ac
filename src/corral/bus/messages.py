"""What travels on the bus, as in LocalAI's wire contract; what only Corral knows travels in the field `corral`.

Unknown fields are ignored. LocalAI leaves out what is empty, so its absent fields mean empty; an absent field of
Corral's stays absent, it never becomes zero.
"""

from typing import Any, TypeVar

import msgspec

from corral.core.errors import InvalidInput
from corral.core.node_history import NodeShare

# Requests


class StartOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a backend that loads its model at start is to be started. gRPC backends are loaded by the frontend."""

    model: str = ""
    """Path of the weights on the worker, or a name the engine knows."""
    model_name: str = ""
    context: int | None = None
    slots: int | None = None
    embeddings: bool = False
    options: dict[str, str] = {}
    """Refused by a backend that does not know them."""
    wishes: dict[str, str] = {}
    """Passed over by a backend that does not know them: of what is installed only the worker knows the options."""
    generation: int | None = None
    """Of the row that wants the process: what `given_away` in a heartbeat's answer is compared with."""


class BlobPeer(msgspec.Struct, frozen=True):
    """A worker that may have the blobs of a backend already."""

    url: str
    """Of its file server: `http://host:port`."""
    token: str
    """Its `blob_token`, from its report."""

    def __repr__(self) -> str:
        return f"BlobPeer({self.url})"


class CommandExtras(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own part of install, upgrade, delete and rollback. A request without it means what LocalAI means."""

    generation: int | None = None
    """Of the intent behind the command; a worker refuses one lower than the last it accepted for that backend."""
    strategy: str | None = None
    """Of an upgrade: `rolling` fetches the new version beside the old one and stops nothing."""
    digest: str | None = None
    """A pin: no other version will do."""
    uris: list[str] | None = None
    """The resolved source and its mirrors; the worker then asks no gallery."""
    version: str | None = None
    sha256: str | None = None
    manifest: dict[str, Any] | None = None
    """How to start it, when the artifact does not tell by itself."""
    start: StartOptions | None = None
    peers: list[BlobPeer] | None = None
    """Asked for each blob before the registry. What they send is checked like anything else, and one that is slow to
    answer or wrong is done without."""
    build: str | None = None
    """Of a delete: what goes by the backend's name on the node, which may not know it by that name itself."""


class InstallRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`backend.install` and, without `model_id` and `force`, `backend.upgrade`."""

    backend: str = ""
    model_id: str = ""
    backend_galleries: str = ""
    uri: str = ""
    name: str = ""
    alias: str = ""
    replica_index: int = 0
    force: bool = False
    op_id: str = ""
    corral: CommandExtras | None = None


class DeleteRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    backend: str
    corral: CommandExtras | None = None


class RollbackRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own."""

    backend: str
    to: str | None = None
    """A digest; without it the version before the current one."""
    generation: int | None = None
    build: str | None = None
    """As in a delete."""


class CancelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. Every running install of the operation, or of the backend."""

    op_id: str = ""
    backend: str = ""
    keep: bool = False
    """What was fetched so far stays: somebody may go on with it."""


class LogsRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own."""

    process_key: str
    lines: int = 200


class BackendStopRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`backend` is a backend's name, a model's id or a process key; empty means everything."""

    backend: str = ""
    force: bool = False


class ModelStopRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    process_key: str
    model_name: str = ""
    expected_address: str = ""
    force: bool = False
    config_revision: str = ""


class ModelUnloadRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    model_name: str = ""
    address: str = ""


class ModelDeleteRequest(msgspec.Struct, frozen=True):
    model_name: str


class WeightsFile(msgspec.Struct, frozen=True, omit_defaults=True):
    filename: str
    """Below the models directory."""
    uri: str
    sha256: str = ""


class ModelFetchRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own: have these weights here, from wherever they are; what is there by digest is not fetched again."""

    model: str
    files: list[WeightsFile] = []
    paths: list[str] = []
    """Names below the models directory; the reply tells which of them there are."""
    peers: list[BlobPeer] = []
    """Other workers that may have them, asked first, by digest."""
    op_id: str = ""


class FileRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`files.ensure`, `.stage`, `.temp` and `.listdir`."""

    key: str = ""
    local_path: str = ""
    key_prefix: str = ""


# Replies


class StartedProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own part of an install's reply."""

    backend: str
    """The name under which it is installed here, which may differ from the one asked for."""
    digest: str = ""
    version: str = ""
    generation: int | None = None
    protocol: str | None = None
    process_key: str | None = None
    pid: int | None = None
    token: str | None = None
    """What the process wants to see from callers. Only ever in a reply, never in what is published."""


class InstallReply(msgspec.Struct, frozen=True, omit_defaults=True):
    success: bool
    address: str = ""
    error: str = ""
    code: str | None = None
    """Corral's own: what kind of failure it was."""
    corral: StartedProcess | None = None


class ChangeReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """`backend.upgrade`, `backend.delete` and Corral's rollback."""

    success: bool
    error: str = ""
    stopped_process_keys: list[str] = []
    reports_stopped_processes: bool = False
    code: str | None = None
    corral: StartedProcess | None = None


class ListedBackend(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    is_system: bool
    is_meta: bool
    installed_at: str = ""
    gallery_url: str = ""
    version: str = ""
    uri: str = ""
    digest: str = ""
    alias: str = ""
    """Corral's own, like all below."""
    generation: int | None = None
    concrete: str | None = None
    """Of a meta: the backend it stands for here."""
    versions: list[str] = []
    """Digests that can be rolled back to, newest first."""
    problem: str = ""


class ListReply(msgspec.Struct, frozen=True, omit_defaults=True):
    backends: list[ListedBackend] | None
    error: str = ""


class ModelStopReply(msgspec.Struct, frozen=True, omit_defaults=True):
    matched: bool
    freed: bool
    terminated: bool
    process_key: str
    address: str = ""
    error: str = ""


class DoneReply(msgspec.Struct, frozen=True, omit_defaults=True):
    success: bool
    error: str = ""


class RunningModel(msgspec.Struct, frozen=True, omit_defaults=True):
    model_id: str
    replica_index: int
    address: str | None = None


class ModelsRunningReply(msgspec.Struct, frozen=True, omit_defaults=True):
    models: list[RunningModel]
    error: str | None = None
    epoch: int | None = None
    """Corral's own: which of a node's processes answers. LocalAI's workers do not tell."""


class HealthAnswer(msgspec.Struct, frozen=True):
    """What the health pass reads of a `models.running` reply: of a thousand of them every few seconds, no more."""

    epoch: int | None = None


class FetchedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    filename: str
    path: str
    digest: str
    size: int


class FoundPath(msgspec.Struct, frozen=True, omit_defaults=True):
    path: str
    size: int | None = None
    """None for a directory."""


class ModelFetchReply(msgspec.Struct, frozen=True, omit_defaults=True):
    success: bool
    error: str = ""
    code: str | None = None
    files: list[FetchedFile] = []
    found: dict[str, FoundPath] = {}


class FileReply(msgspec.Struct, frozen=True, omit_defaults=True):
    local_path: str = ""
    key: str = ""
    error: str = ""


class ListDirReply(msgspec.Struct, frozen=True, omit_defaults=True):
    files: list[str] | None
    error: str = ""


class CancelReply(msgspec.Struct, frozen=True, omit_defaults=True):
    cancelled: int
    """How many running installs were told."""
    error: str = ""


class LogRecord(msgspec.Struct, frozen=True):
    timestamp: str
    stream: str
    text: str


class LogsReply(msgspec.Struct, frozen=True, omit_defaults=True):
    lines: list[LogRecord] | None
    error: str = ""


# Published


class ProgressExtras(msgspec.Struct, frozen=True, omit_defaults=True):
    sequence: int
    """Counts from 1; a smaller one than the last seen is stale."""
    phase: str
    bytes_done: int
    bytes_total: int | None = None
    file_index: int | None = None
    """Of a model's files the one that moves now, from 1."""
    total_files: int | None = None
    rate_bytes_per_s: float | None = None
    eta_s: float | None = None
    last: bool = False
    error: str = ""


class InstallProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    op_id: str
    node_id: str
    backend: str
    percentage: float
    file_name: str = ""
    current: str = ""
    total: str = ""
    phase: str = ""
    corral: ProgressExtras | None = None


class StagingStatus(msgspec.Struct, frozen=True):
    model_id: str
    node_name: str
    file_name: str
    bytes_sent: int
    total_bytes: int
    progress: float
    """0 to 100, over all files."""
    speed: str
    file_index: int
    total_files: int
    message: str
    started_at: str


class StagingProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    model_id: str
    done: bool
    status: StagingStatus | None = None


class ReportedProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    process_key: str
    model_id: str
    replica_index: int
    backend: str
    digest: str
    protocol: str
    state: str
    """`starting`, `ready`, `backing_off`, `stopping`, `stopped` or `failed`; more may come."""
    reason: str = ""
    version: str = ""
    """What the version it was started from calls itself; `digest` is the one to compare."""
    generation: int | None = None
    """Of the last order that wanted exactly this process; absent when none with a generation did."""
    pid: int | None = None
    port: int | None = None
    address: str | None = None
    restarts: int = 0
    memory_bytes: int | None = None
    cpu_s: float | None = None
    gpu_memory_bytes: int | None = None
    token: str | None = None
    """Only in a reply, never in what is published."""


class NodeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that is installed and runs on a node, complete: what is not in it is not there.

    One with a lower (`epoch`, `sequence`) than the last seen is stale; another `instance` counts from 1 again, under a
    higher epoch.
    """

    node: str
    instance: str
    epoch: int
    sequence: int
    backends: list[ListedBackend]
    processes: list[ReportedProcess]
    applied: dict[str, int] = {}
    """Generation of the last order carried out, by the backend's name in the order. Deletes too, so that an absent
    backend with its delete's generation here is a delete that is done."""
    http_token: str | None = None
    """Opens the worker's file server. Only in a reply."""
    blob_token: str | None = None
    """Opens its blobs, for other workers. Only in a reply."""


class NodesChanged(msgspec.Struct, frozen=True):
    """Corral's own. A hint: whoever hears it reads the store."""

    frontend: str


class RoutesChanged(msgspec.Struct, frozen=True):
    """Corral's own. A hint: whoever hears it compares the version and reads the store."""

    frontend: str
    version: int | None = None


class OpenRequests(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. What one frontend process works on now, complete: what is not in it is zero."""

    frontend: str
    sequence: int
    """Grows within one run of the process; `run` tells runs apart."""
    run: str = ""
    replicas: dict[str, int] = {}
    idle_ms: dict[str, int] = {}
    """For replicas used lately: how long ago."""
    queues: dict[str, int] = {}
    """Requests that wait for a replica, by model."""


class PulseBeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. What one frontend process answered since its last beat."""

    frontend: str
    requests: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    first_byte: tuple[int, ...] = ()
    """Answers by the time to their first byte."""
    nodes: dict[str, NodeShare] = {}
    """By name, those that answered."""


Message = TypeVar("Message", bound=msgspec.Struct)


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def decode(data: bytes, kind: type[Message]) -> Message:
    """An empty body and LocalAI's `null` both mean "no fields"."""
    try:
        return msgspec.json.decode(data if data.strip() not in (b"", b"null") else b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"this is not a message we know: {error}") from None
