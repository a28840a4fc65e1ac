"""What travels on the bus, as in LocalAI's wire contract; what only Corral knows travels in the field `corral`.

Unknown fields are ignored. LocalAI leaves out what is empty, so its absent fields mean empty; an absent field of
Corral's stays absent, it never becomes zero.
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
    NODES_MOST,
    PEERS_MOST,
    PROCESSES_MOST,
    Amount,
    Count,
    Counts,
    Document,
    LongText,
    Name,
    Names,
    Options,
    Percentage,
    Port,
    Slot,
    Text,
    Texts,
    check_depth,
    read_message,
    without_nul,
)
from corral.core.nodes.history import TrafficShare

# Requests


class StartOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a backend that loads its model at start is to be started. gRPC backends are loaded by the frontend."""

    model: Text = ""
    """Path of the weights on the worker, or a name the engine knows."""
    model_name: Name = ""
    context: Count | None = None
    slots: Count | None = None
    embeddings: bool = False
    options: Options = {}
    """Refused by a backend that does not know them."""
    soft_options: Options = {}
    """Passed over by a backend that does not know them: of what is installed only the worker knows the options."""
    files: Texts | None = None
    """What the process may read in the worker's models directory: files and directories, by name. None, as from a
    LocalAI frontend, means all that is kept under the model's own name."""
    generation: Count | None = None
    """Of the row that wants the process: what `revoked` in a heartbeat's answer is compared with."""


class BlobPeer(msgspec.Struct, frozen=True):
    """A worker that may have the blobs of a backend already."""

    url: Text
    """Of its file server: `http://host:port`."""
    token: Name
    """Its `blob_token`, from its report."""

    def __repr__(self) -> str:
        return f"BlobPeer({self.url})"


class CommandExtras(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own part of install, upgrade, delete and rollback. A request without it means what LocalAI means."""

    generation: Count | None = None
    """Of the intent behind the command; a worker refuses one lower than the last it accepted for that backend."""
    strategy: Name | None = None
    """Of an upgrade: `rolling` fetches the new version beside the old one and stops nothing."""
    digest: Name | None = None
    """A pin: no other version will do."""
    uris: Texts | None = None
    """The resolved source and its mirrors; the worker then asks no gallery."""
    version: Name | None = None
    sha256: Name | None = None
    manifest: Document | None = None
    """How to start it, when the artifact does not tell by itself."""
    start: StartOptions | None = None
    peers: Annotated[list[BlobPeer], msgspec.Meta(max_length=PEERS_MOST)] | None = None
    """Asked for each blob before the registry. What they send is checked like anything else, and one that is slow to
    answer or wrong is done without."""
    build: Name | None = None
    """Of a delete: what goes by the backend's name on the node, which may not know it by that name itself."""
    op_id: Name = ""
    """Of a delete, whose request has no place for it: the operation behind it."""

    def __post_init__(self) -> None:
        check_depth(self.manifest)


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


class DeleteRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    backend: Name
    corral: CommandExtras | None = None


class RollbackRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own."""

    backend: Name
    to: Name | None = None
    """A digest; without it the version before the current one."""
    generation: Count | None = None
    build: Name | None = None
    """As in a delete."""
    undo: bool = False
    """Takes back the order of this generation, which has not been carried out then."""
    op_id: Name = ""


class CancelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. Every running install of the operation, or of the backend."""

    op_id: Name = ""
    backend: Name = ""
    keep: bool = False
    """What was fetched so far stays: somebody may go on with it."""


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
    """Corral's own: void where a load of a later generation has asked for the same file."""
    epoch: Count | None = None
    """Corral's own: of the worker it was meant for; one that was started since has forgotten who asked for what."""


class WeightsFile(msgspec.Struct, frozen=True, omit_defaults=True):
    filename: Text
    """Below the models directory."""
    uri: Text
    sha256: Name = ""


class ModelFetchRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own: have these weights here, from wherever they are; what is there by digest is not fetched again."""

    model: Name
    files: Annotated[list[WeightsFile], msgspec.Meta(max_length=FILES_MOST)] = []
    paths: Texts = []
    """Names below the models directory; the reply tells which of them there are."""
    peers: Annotated[list[BlobPeer], msgspec.Meta(max_length=PEERS_MOST)] = []
    """Other workers that may have them, asked first, by digest."""
    op_id: Name = ""
    generation: Count | None = None
    """Of the replica they are for. A deletion that was decided before it takes none of these files."""


class FileRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`files.ensure`, `.stage`, `.temp` and `.listdir`."""

    key: Text = ""
    local_path: Text = ""
    key_prefix: Text = ""


# Replies


class StartedProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own part of an install's reply."""

    backend: Name
    """The name under which it is installed here, which may differ from the one asked for."""
    digest: Name = ""
    version: Name = ""
    generation: Count | None = None
    protocol: Name | None = None
    process_key: Name | None = None
    pid: Count | None = None
    token: Name | None = None
    """What the process wants to see from callers. Only ever in a reply, never in what is published."""


class InstallReply(msgspec.Struct, frozen=True, omit_defaults=True):
    success: bool
    address: Name = ""
    error: LongText = ""
    code: Name | None = None
    """Corral's own: what kind of failure it was."""
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
    """Of a meta: the backend it stands for here."""
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
    """Corral's own: which of a node's processes answers. LocalAI's workers do not tell."""


class HealthAnswer(msgspec.Struct, frozen=True):
    """What the health pass reads of a `models.running` reply: of a thousand of them every few seconds, no more."""

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
    """How many running installs were told."""
    going_on: Count = 0
    """Deletes and rollbacks of the operation that are being carried out: they are not stopped half-way."""
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
    """Counts from 1; a smaller one than the last seen is stale."""
    phase: Name
    bytes_done: Count
    bytes_total: Count | None = None
    file_index: Count | None = None
    """Of a model's files the one that moves now, from 1."""
    total_files: Count | None = None
    rate_bytes_per_s: Amount | None = None
    eta_s: Amount | None = None
    last: bool = False
    error: LongText = ""


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
    state: Name
    """`starting`, `ready`, `backing_off`, `stopping`, `stopped` or `failed`; more may come."""
    reason: Text = ""
    version: Name = ""
    """What the version it was started from calls itself; `digest` is the one to compare."""
    generation: Count | None = None
    """Of the last order that wanted exactly this process; absent when none with a generation did."""
    pid: Count | None = None
    port: Port | None = None
    address: Name | None = None
    restarts: Count = 0
    memory_bytes: Count | None = None
    cpu_s: Amount | None = None
    gpu_memory_bytes: Count | None = None
    token: Name | None = None
    """Only in a reply, never in what is published."""


class NodeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that is installed and runs on a node, complete: what is not in it is not there.

    One with a lower (`epoch`, `sequence`) than the last seen is stale; another `instance` counts from 1 again, under a
    higher epoch.
    """

    node: Name
    instance: Name
    epoch: Count
    sequence: Count
    backends: Annotated[list[ListedBackend], msgspec.Meta(max_length=BACKENDS_MOST)]
    processes: Annotated[list[ReportedProcess], msgspec.Meta(max_length=PROCESSES_MOST)]
    applied: Counts = {}
    """Generation of the last order carried out, by the backend's name in the order. Deletes too, so that an absent
    backend with its delete's generation here is a delete that is done."""
    http_token: Name | None = None
    """Opens the worker's file server. Only in a reply."""
    blob_token: Name | None = None
    """Opens its blobs, for other workers. Only in a reply."""


class NodesChanged(msgspec.Struct, frozen=True):
    """Corral's own. A hint: whoever hears it reads the store."""

    frontend: Name


class RoutesChanged(msgspec.Struct, frozen=True):
    """Corral's own. A hint: whoever hears it compares the version and reads the store."""

    frontend: Name
    version: Count | None = None


class OpenRequests(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. What one frontend process works on now, complete: what is not in it is zero."""

    frontend: Name
    sequence: Count
    """Grows within one run of the process; `run` tells runs apart."""
    run: Name = ""
    replicas: Counts = {}
    idle_ms: Counts = {}
    """For replicas used lately: how long ago."""
    queues: Counts = {}
    """Requests that wait for a replica, by model."""


class KeysQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. Which API keys are in force? From a frontend that cannot ask the store."""

    frontend: Name
    revoked: Annotated[list[Name], msgspec.Meta(max_length=ENTRIES_MOST)] = []
    """Ids of keys that it knows to be revoked: who was off the bus when that was announced hears it here."""


class KeysInForce(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. The answer: every key in force and a mark of what it may do; nothing secret."""

    from_store: bool
    """False where who answers has lost the store too; it then knows no more than who asks."""
    keys: Annotated[dict[Name, Name], msgspec.Meta(max_length=ENTRIES_MOST)] = {}


class PulseBeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corral's own. What one frontend process answered since its last beat."""

    frontend: Name
    requests: Count = 0
    failed: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0
    first_byte: Annotated[tuple[Count, ...], msgspec.Meta(max_length=BUCKETS_MOST)] = ()
    """Answers by the time to their first byte."""
    nodes: Annotated[dict[Name, TrafficShare], msgspec.Meta(max_length=NODES_MOST)] = {}
    """By name, those that answered."""

    def __post_init__(self) -> None:
        for share in self.nodes.values():
            if not (0 <= share.requests <= INT_MOST and 0 <= share.failed <= INT_MOST and math.isfinite(share.busy_s)):
                raise ValueError("a machine's share of the answers is out of range")


Message = TypeVar("Message", bound=msgspec.Struct)


def encode(message: msgspec.Struct) -> bytes:
    return without_nul(msgspec.json.encode(message))


def decode(data: bytes, kind: type[Message]) -> Message:
    """An empty body and LocalAI's `null` both mean "no fields". Raises InvalidInput and nothing else."""
    body = data if data.strip() not in (b"", b"null") else b"{}"
    return read_message(body, lambda given: msgspec.json.decode(given, type=kind))
