"""Messages on the bus, as in LocalAI's wire contract. Corral's own data is in the field `corral`.

Unknown fields are ignored. LocalAI omits empty fields, so an absent field of its own means empty. An absent field of
Corral's means unknown, never zero.
"""

import math
from typing import Annotated, TypeVar

import msgspec

from corral.bus.limits import (
    BACKENDS_MOST,
    BUCKETS_MOST,
    ENTRIES_MOST,
    FILES_MOST,
    INT_MOST,
    KEYS_MOST,
    NODES_MOST,
    PEERS_MOST,
    PROCESSES_MOST,
    Amount,
    Count,
    Counts,
    Endpoints,
    Fitted,
    LongText,
    Name,
    Names,
    Options,
    Percentage,
    Port,
    Slot,
    Text,
    Texts,
    check_build,
    check_transfer,
    read_message,
    without_nul,
)
from corral.core.backends.build import BuildRef
from corral.core.nodes.engine_capacity import CONTEXT_MOST, EngineCapacity, check_engine
from corral.core.nodes.history import TrafficShare
from corral.core.nodes.observed import ProcessStatus
from corral.core.transfer import TransferProgress

# Requests


class StartOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to start a backend that loads its model at start. The frontend loads models into gRPC backends."""

    model: Text = ""
    """Path of the weights on the worker, or a name the engine knows."""
    model_name: Name = ""
    context: Annotated[int, msgspec.Meta(ge=-1, le=CONTEXT_MOST)] | None = None
    """-1 for all that the model was trained for; None: the engine decides."""
    slots: Count | None = None
    """None: the engine decides."""
    memory_bytes: Count | None = None
    """Reserved for the process by placement; an engine that can be fitted uses no more."""
    embeddings: bool = False
    options: Options = {}
    """The start fails if the backend does not know one of them."""
    soft_options: Options = {}
    """Ignored if the backend does not know them: only the worker knows the options of an installed backend."""
    files: Texts | None = None
    """Files and directories below the worker's models directory that the process may read. None, as from a LocalAI
    frontend, means all below the model's own name."""
    generation: Count | None = None
    """Of the replica's row; compared with `revoked` in the replies to heartbeats."""
    lease_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    """The first lease of the process. Replies to heartbeats renew it; None: it has none until a reply grants one."""


class BlobPeer(msgspec.Struct, frozen=True):
    """A worker that may already have the blobs of a backend."""

    url: Text
    """Of its file server: `http://host:port`."""
    token: Name
    """Its `blob_token`, from its report."""
    is_far: bool = False
    """Of another site: asked only if the source is unavailable."""

    def __repr__(self) -> str:
        return f"BlobPeer({self.url})"


class CommandExtras(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's part of install, upgrade and delete. A request without it has LocalAI's meaning."""

    generation: Count | None = None
    """Of the intent; a worker rejects one that is lower than the last it accepted for the backend."""
    strategy: Name | None = None
    """For an upgrade: `rolling` installs the new version beside the old one and stops nothing."""
    build: BuildRef | None = None
    """The build to install or, for a delete, the one that has the backend's name on the node. With `uris`, the worker
    asks no gallery; with a digest, it accepts no other version."""
    start: StartOptions | None = None
    peers: Annotated[list[BlobPeer], msgspec.Meta(max_length=PEERS_MOST)] | None = None
    """Workers to ask for blobs before the registry. Their blobs are verified, and a slow or wrong one is skipped."""
    op_id: Name = ""
    """The operation, for a delete: LocalAI's request has no field for it."""

    def __post_init__(self) -> None:
        if self.build is not None:
            check_build(self.build)


class InstallRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`backend.install` and, without `model_id` and `force`, `backend.upgrade`."""

    backend: Name = ""
    model_id: Name = ""
    backend_galleries: LongText = ""
    uri: Text = ""
    name: Name = ""
    alias: Name = ""
    replica_index: Slot = 0
    force: bool = False
    op_id: Name = ""
    corral: CommandExtras | None = None

    @property
    def pinned_digest(self) -> str:
        """Of the only acceptable version; empty if any will do."""
        return self.corral.build.digest if self.corral is not None and self.corral.build is not None else ""


class DeleteRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    backend: Name
    corral: CommandExtras | None = None


class RollbackRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own."""

    backend: Name
    to: Name | None = None
    """A digest. None means the previous version."""
    generation: Count | None = None
    build: Name | None = None
    """The build that has the backend's name on the node."""
    undo: bool = False
    """Reverts the intent of this generation, which then no longer counts as applied."""
    op_id: Name = ""


class SmokeTestRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. Starts the current version of the backend once, if it is this one, and stops it again."""

    backend: Name
    digest: Name
    op_id: Name


class SmokeTestReply(msgspec.Struct, frozen=True, omit_defaults=True):
    success: bool
    tried: bool = False
    """False with success: the version cannot be tested, for the reason in `detail`."""
    detail: LongText = ""
    error: LongText = ""
    code: Name | None = None


class CancelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. Cancels every running install of the operation, or of the backend."""

    op_id: Name = ""
    backend: Name = ""
    keep: bool = False
    """Keep what was downloaded so far, for a retry."""


class LogsRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own."""

    process_key: Name
    lines: Count = 200


class BackendStopRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`backend` is a backend's name, a model's id or a process key; empty means everything."""

    backend: Name = ""
    force: bool = False


class ModelStopRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    process_key: Name
    model_name: Name = ""
    expected_address: Name = ""
    force: bool = False
    config_revision: Name = ""


class ModelUnloadRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    model_name: Name = ""
    address: Name = ""


class ModelDeleteRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    model_name: Name
    generation: Count | None = None
    """Corral's own: ignored if a load of a later generation has requested the same file."""
    epoch: Count | None = None
    """Corral's own: the worker process it is meant for; a restarted one no longer knows which loads requested what."""


class WeightsFile(msgspec.Struct, frozen=True, omit_defaults=True):
    filename: Text
    """Below the models directory."""
    uri: Text
    sha256: Name = ""


class ModelFetchRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own: download these weights. Files that are present with the right digest are not fetched again."""

    model: Name
    files: Annotated[list[WeightsFile], msgspec.Meta(max_length=FILES_MOST)] = []
    paths: Texts = []
    """Names below the models directory; the reply lists those that exist."""
    peers: Annotated[list[BlobPeer], msgspec.Meta(max_length=PEERS_MOST)] = []
    """Workers that may have the files; asked first, by digest."""
    op_id: Name = ""
    generation: Count | None = None
    """Of the replica they are for. An older deletion removes none of these files."""


class FileRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`files.ensure`, `.stage`, `.temp` and `.listdir`."""

    key: Text = ""
    local_path: Text = ""
    key_prefix: Text = ""


# Replies


class StartedProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's part of the reply to an install."""

    backend: Name
    """The name under which it is installed on the node, which may differ from the requested one."""
    digest: Name = ""
    version: Name = ""
    generation: Count | None = None
    protocol: Name | None = None
    endpoints: Endpoints = ()
    """Client APIs that the process speaks itself, besides OpenAI's chat completions."""
    continuation: Name = ""
    """How the process continues an answer that another one began; empty if it cannot."""
    process_key: Name | None = None
    pid: Count | None = None
    token: Name | None = None
    """The token that the process requires of its clients. Only in a reply, never published."""
    fitted: Fitted = {}
    """How a gRPC backend should load the model on this machine; the frontend sends that call."""


class InstallReply(msgspec.Struct, frozen=True, omit_defaults=True):
    success: bool
    address: Name = ""
    error: LongText = ""
    code: Name | None = None
    """Corral's own: the kind of failure."""
    corral: StartedProcess | None = None


class ChangeReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """`backend.upgrade`, `backend.delete` and Corral's rollback."""

    success: bool
    error: LongText = ""
    stopped_process_keys: Names = []
    reports_stopped_processes: bool = False
    code: Name | None = None
    corral: StartedProcess | None = None


class ListedBackend(msgspec.Struct, frozen=True, omit_defaults=True):
    name: Name
    is_system: bool
    is_meta: bool
    installed_at: Name = ""
    gallery_url: Text = ""
    version: Name = ""
    uri: Text = ""
    digest: Name = ""
    alias: Name = ""
    """Corral's own, like all below."""
    generation: Count | None = None
    concrete: Name | None = None
    """For a meta backend: the backend it stands for on this node."""
    versions: Names = []
    """Digests that can be rolled back to, newest first."""
    problem: Text = ""


class ListReply(msgspec.Struct, frozen=True, omit_defaults=True):
    backends: Annotated[list[ListedBackend], msgspec.Meta(max_length=BACKENDS_MOST)] | None
    error: LongText = ""


class ModelStopReply(msgspec.Struct, frozen=True, omit_defaults=True):
    matched: bool
    freed: bool
    terminated: bool
    process_key: Name
    address: Name = ""
    error: LongText = ""


class DoneReply(msgspec.Struct, frozen=True, omit_defaults=True):
    success: bool
    error: LongText = ""


class RunningModel(msgspec.Struct, frozen=True, omit_defaults=True):
    model_id: Name
    replica_index: Slot
    address: Name | None = None


class ModelsRunningReply(msgspec.Struct, frozen=True, omit_defaults=True):
    models: Annotated[list[RunningModel], msgspec.Meta(max_length=PROCESSES_MOST)]
    error: LongText | None = None
    epoch: Count | None = None
    """Corral's own: which of the node's worker processes answers. LocalAI's workers do not send it."""


class HealthAnswer(msgspec.Struct, frozen=True):
    """The only field that the health controller reads of the many `models.running` replies."""

    epoch: Count | None = None


class FetchedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    filename: Text
    path: Text
    digest: Name
    size: Count


class FoundPath(msgspec.Struct, frozen=True, omit_defaults=True):
    path: Text
    size: Count | None = None
    """None for a directory."""


class ModelFetchReply(msgspec.Struct, frozen=True, omit_defaults=True):
    success: bool
    error: LongText = ""
    code: Name | None = None
    files: Annotated[list[FetchedFile], msgspec.Meta(max_length=FILES_MOST)] = []
    found: Annotated[dict[Text, FoundPath], msgspec.Meta(max_length=FILES_MOST)] = {}


class FileReply(msgspec.Struct, frozen=True, omit_defaults=True):
    local_path: Text = ""
    key: Text = ""
    error: LongText = ""


class ListDirReply(msgspec.Struct, frozen=True, omit_defaults=True):
    files: Texts | None
    error: LongText = ""


class CancelReply(msgspec.Struct, frozen=True, omit_defaults=True):
    cancelled: Count
    """How many running installs were told to stop."""
    in_progress: Count = 0
    """Running deletes and rollbacks of the operation; they are not interrupted."""
    error: LongText = ""


class LogRecord(msgspec.Struct, frozen=True):
    timestamp: Name
    stream: Name
    text: LongText


class LogsReply(msgspec.Struct, frozen=True, omit_defaults=True):
    lines: Annotated[list[LogRecord], msgspec.Meta(max_length=FILES_MOST)] | None
    error: LongText = ""


# Published


class ProgressExtras(msgspec.Struct, frozen=True, omit_defaults=True):
    sequence: Count
    """Counts from 1; a lower one than the last received is stale."""
    transfer: TransferProgress = TransferProgress()
    last: bool = False
    error: LongText = ""

    def __post_init__(self) -> None:
        check_transfer(self.transfer)


class InstallProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    op_id: Name
    node_id: Name
    backend: Name
    percentage: Percentage
    file_name: Text = ""
    current: Name = ""
    total: Name = ""
    phase: Name = ""
    corral: ProgressExtras | None = None

    @property
    def transfer(self) -> TransferProgress:
        """The whole value from a Corral worker; from a LocalAI worker, what its own fields say."""
        if self.corral is not None:
            return self.corral.transfer
        return TransferProgress(phase=self.phase, file_name=self.file_name, percentage=self.percentage)


class StagingStatus(msgspec.Struct, frozen=True):
    model_id: Name
    node_name: Name
    file_name: Text
    bytes_sent: Count
    total_bytes: Count
    progress: Percentage
    """0 to 100, over all files."""
    speed: Name
    file_index: Count
    total_files: Count
    message: Text
    started_at: Name


class StagingProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    model_id: Name
    done: bool
    status: StagingStatus | None = None


class ReportedProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    process_key: Name
    model_id: Name
    replica_index: Slot
    backend: Name
    digest: Name
    protocol: Name
    state: ProcessStatus
    reason: Text = ""
    version: Name = ""
    """The version number, for people; compare `digest`."""
    generation: Count | None = None
    """Of the last command that requested exactly this process; absent if none had a generation."""
    pid: Count | None = None
    port: Port | None = None
    address: Name | None = None
    restarts: Count = 0
    memory_bytes: Count | None = None
    cpu_s: Amount | None = None
    gpu_memory_bytes: Count | None = None
    engine: EngineCapacity | None = None
    """How many requests its engine takes, as far as the worker knows."""
    token: Name | None = None
    """Only in a reply, never published."""

    def __post_init__(self) -> None:
        if self.engine is not None:
            check_engine(self.engine)


class NodeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The complete list of installed backends and running processes of a node.

    One with a lower (`epoch`, `sequence`) than the last received is stale. A new `instance` counts from 1 again, in a
    higher epoch.
    """

    node: Name
    instance: Name
    epoch: Count
    sequence: Count
    backends: Annotated[list[ListedBackend], msgspec.Meta(max_length=BACKENDS_MOST)]
    processes: Annotated[list[ReportedProcess], msgspec.Meta(max_length=PROCESSES_MOST)]
    applied: Counts = {}
    """The last applied generation by the backend's name in the command, deletes included: an absent backend with the
    generation of its delete confirms the delete."""
    http_token: Name | None = None
    """The token of the worker's file server. Only in a reply."""
    blob_token: Name | None = None
    """The token with which other workers read its blobs. Only in a reply."""


class NodesChanged(msgspec.Struct, frozen=True):
    """Corral's own. A change notification: receivers read the store."""

    frontend: Name


class RoutesChanged(msgspec.Struct, frozen=True):
    """Corral's own. A change notification: receivers compare the version and read the store."""

    frontend: Name
    version: Count | None = None


class OpenRequests(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. The complete list of a frontend process's open requests; a replica that is not in it has none."""

    frontend: Name
    sequence: Count
    """Grows within one run of the process; `run` identifies the run."""
    run: Name = ""
    replicas: Counts = {}
    idle_ms: Counts = {}
    """For recently used replicas: the time since the last request."""
    queues: Counts = {}
    """Requests waiting for a replica, by model."""


class KeysRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. Asks which API keys are in force; from a frontend that cannot read the store."""

    frontend: Name
    revoked: Annotated[list[Name], msgspec.Meta(max_length=ENTRIES_MOST)] = []
    """Ids of keys that it knows to be revoked, for frontends that missed the revocation."""


class KeysInForce(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. The reply: every key in force with a mark of its permissions, without secrets."""

    from_store: bool
    """False if the sender cannot read the store either."""
    keys: Annotated[dict[Name, Name], msgspec.Meta(max_length=ENTRIES_MOST)] = {}


class KeyCounts(msgspec.Struct, frozen=True, array_like=True):
    """Of one key: what a process has counted since it started, and what counts in the last minute on all of them."""

    requests: Count
    tokens: Count
    spent: Count
    """Tokens that count towards budgets."""
    open: Count
    """Requests that are open at this process now."""
    recent_requests: Count
    """In the last minute, at this process; for a receiver that hears it for the first time."""
    recent_tokens: Count
    window_requests: Count
    """In the last minute, at all processes, as far as the sender knows."""
    window_tokens: Count


class KeyUse(msgspec.Struct, frozen=True):
    """Corral's own. The limited keys that one frontend process served since its last message."""

    frontend: Name
    run: Name
    """Identifies the run of the process."""
    keys: Annotated[dict[Name, KeyCounts], msgspec.Meta(max_length=KEYS_MOST)] = {}


class TrafficReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. What one frontend process has answered since its last message."""

    frontend: Name
    requests: Count = 0
    failed: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0
    first_byte: Annotated[tuple[Count, ...], msgspec.Meta(max_length=BUCKETS_MOST)] = ()
    """Responses by time to first byte."""
    nodes: Annotated[dict[Name, TrafficShare], msgspec.Meta(max_length=NODES_MOST)] = {}
    """By node name: the nodes that answered."""

    def __post_init__(self) -> None:
        for share in self.nodes.values():
            if not (0 <= share.requests <= INT_MOST and 0 <= share.failed <= INT_MOST and math.isfinite(share.busy_s)):
                raise ValueError("a node's traffic share is out of range")


Message = TypeVar("Message", bound=msgspec.Struct)


def encode(message: msgspec.Struct) -> bytes:
    return without_nul(msgspec.json.encode(message))


def decode(data: bytes, kind: type[Message]) -> Message:
    """Reads an empty body and LocalAI's `null` as a message without fields. Raises InvalidInput only."""
    body = data if data.strip() not in (b"", b"null") else b"{}"
    return read_message(body, lambda given: msgspec.json.decode(given, type=kind))
