"""The bodies of `/api/node/*`, as in LocalAI. Corral's own data is in the field `corral`.

Byte counts are whole numbers; None means unknown. LocalAI's workers send 0 for missing GPU memory, and 0 or nothing for
a disk they could not measure.
"""

from functools import lru_cache
from typing import Annotated

import msgspec

from corral.bus.limits import PROCESSES_MOST, Amount, Count, Counts, Name, Text, read_message

INSTANCE_HEADER = "X-Corral-Instance"
"""Identifies the worker process in requests without a body: an old process must not sign its successor off."""

ShortText = Annotated[str, msgspec.Meta(max_length=255)]
LONG_TEXT_MOST = 512
LongText = Annotated[str, msgspec.Meta(max_length=LONG_TEXT_MOST)]


Words = Annotated[list[ShortText], msgspec.Meta(max_length=128)]
Problems = Annotated[list[Annotated[str, msgspec.Meta(max_length=1000)]], msgspec.Meta(max_length=64)]


class GpuFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    vendor: ShortText
    name: ShortText | None = None
    memory_total_bytes: Count | None = None
    memory_free_bytes: Count | None = None
    unified: bool = False
    driver: ShortText | None = None
    compute_capability: ShortText | None = None


class NodeFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a Corral worker reports about its machine beyond LocalAI's fields."""

    version: ShortText | None = None
    platform: ShortText | None = None
    cpu_model: ShortText | None = None
    cpu_count: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)] | None = None
    cpu_flags: Words | None = None
    gpus: Annotated[list[GpuFacts], msgspec.Meta(max_length=64)] = []
    capability_reason: LongText | None = None
    isolation: ShortText | None = None
    """How well its backends are isolated: `full`, `partial` or `none`."""
    isolation_reason: LongText | None = None
    problems: Problems = []


class RegisterExtras(msgspec.Struct, frozen=True, omit_defaults=True):
    node_key: Annotated[str, msgspec.Meta(min_length=32, max_length=128)]
    """The secret that the node generated; only the node knows it."""
    instance: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    bus_public_key: Annotated[str, msgspec.Meta(pattern="^U[A-Z2-7]{55}$")] | None = None
    facts: NodeFacts = NodeFacts()


class RegisterRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    address: LongText = ""
    http_address: LongText = ""
    node_type: ShortText | None = None
    token: LongText | None = None
    total_vram: Count | None = None
    available_vram: Count | None = None
    total_ram: Count | None = None
    available_ram: Count | None = None
    total_disk: Count | None = None
    available_disk: Count | None = None
    gpu_vendor: ShortText | None = None
    gpu_compute_capability: ShortText | None = None
    capability: ShortText | None = None
    labels: Annotated[dict[Name, Name], msgspec.Meta(max_length=1024)] | None = None
    max_replicas_per_model: Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)] | None = None
    vram_budget: ShortText | None = None
    corral: RegisterExtras | None = None


class GrantedLeases(msgspec.Struct, frozen=True, omit_defaults=True):
    """Process leases: what a node may keep running. Part of the replies to registrations and heartbeats."""

    leases_s: Annotated[
        dict[Name, Annotated[float, msgspec.Meta(gt=0, le=1e9)]], msgspec.Meta(max_length=PROCESSES_MOST)
    ] = {}
    """By process key: how long after its request the node may run the process without a further reply. The table is
    complete; a process that is not in it has no limit."""
    revoked: Counts = {}
    """By process key: processes to stop at once, as they now run elsewhere. The number is a generation: a process that
    was started with a higher one is not affected."""


class RegisterReplyExtras(msgspec.Struct, frozen=True, omit_defaults=True):
    epoch: Count
    bus_url: Text | None = None
    """The address of the message bus, as seen from the worker."""
    bus_anonymous: bool = False
    """Whether an administrator has opened the bus to everyone, so that there are no credentials."""
    credential_ttl_s: Amount | None = None
    """How long the credential is valid from now on. A duration, because clocks differ."""
    heartbeat_interval_s: Amount | None = None
    frontends: Annotated[list[Text], msgspec.Meta(max_length=PROCESSES_MOST)] = []
    """All frontends: if one fails, its workers use the others."""
    grant: GrantedLeases | None = None
    waiting_for: Text | None = None
    """What has to happen before this node may work, for people."""


class RegisterReply(msgspec.Struct, frozen=True, omit_defaults=True):
    id: Name
    name: Name
    node_type: Name
    status: Name
    created_at: Name
    nats_jwt: Text | None = None
    nats_user_seed: Name | None = None
    corral: RegisterReplyExtras | None = None


class NodeCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: ShortText
    reason: LongText
    remedy: LongText = ""


class HeartbeatExtras(msgspec.Struct, frozen=True, omit_defaults=True):
    instance: Annotated[str, msgspec.Meta(max_length=64)]
    sent_at_ms: Count | None = None
    """By the worker's clock; compared with the frontend's."""
    conditions: Annotated[list[NodeCondition], msgspec.Meta(max_length=16)] | None = None
    """All reasons why the node takes no new work; None from a worker that does not send them."""


class HeartbeatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    available_vram: Count | None = None
    total_vram: Count | None = None
    available_ram: Count | None = None
    available_disk: Count | None = None
    total_disk: Count | None = None
    gpu_vendor: ShortText | None = None
    corral: HeartbeatExtras | None = None


class HeartbeatReply(msgspec.Struct, frozen=True, omit_defaults=True):
    message: Text = ""
    corral: GrantedLeases | None = None


DOWNLOADS_MOST = 64
Digest = Annotated[str, msgspec.Meta(pattern=r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$")]


BlobBytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
BlobRate = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class BlobClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A blob that a worker is about to fetch, or fetches for its site. See `core.backends.site_downloads`."""

    digest: Digest
    bytes_done: BlobBytes = 0
    rate_bytes_per_s: BlobRate = 0.0
    leader: ShortText = ""
    received_bytes_per_s: BlobRate | None = None
    bytes_left: BlobBytes | None = None
    tried: bool = False
    unreachable: ShortText = ""
    followed: bool = False
    is_done: bool = False
    has_failed: bool = False
    releases: bool = False


class DownloadsRequest(msgspec.Struct, frozen=True):
    blobs: Annotated[list[BlobClaim], msgspec.Meta(max_length=DOWNLOADS_MOST)]


class BlobAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Without `leads`, `tries`, `waits` and `node`, the worker fetches the blob for itself only."""

    digest: Digest
    leads: bool = False
    tries: bool = False
    """Fetches it from its source for a moment, and asks again."""
    waits: bool = False
    """Asks again."""
    leader_failed: bool = False
    """The node that fetched it for the site has just failed, after all its retries."""
    node: ShortText = ""
    url: Text = ""
    """Of the file server of `node`."""
    token: Name = ""

    def __repr__(self) -> str:
        return f"BlobAnswer({self.digest}, leads={self.leads}, node={self.node})"


class DownloadsReply(msgspec.Struct, frozen=True):
    blobs: Annotated[list[BlobAnswer], msgspec.Meta(max_length=DOWNLOADS_MOST)]


class SendingProcess(msgspec.Struct, frozen=True):
    instance: Annotated[str, msgspec.Meta(max_length=64)]


class HeartbeatSender(msgspec.Struct, frozen=True):
    """The only part of a heartbeat that must be readable: which process sends it."""

    corral: SendingProcess | None = None


_register = msgspec.json.Decoder(RegisterRequest).decode
_register_reply = msgspec.json.Decoder(RegisterReply).decode
_heartbeat = msgspec.json.Decoder(HeartbeatRequest).decode
_heartbeat_sender = msgspec.json.Decoder(HeartbeatSender).decode
_heartbeat_reply = msgspec.json.Decoder(HeartbeatReply).decode

# Each raises only InvalidInput.


def decode_register(data: bytes) -> RegisterRequest:
    return read_message(data, _register)


def decode_register_reply(data: bytes) -> RegisterReply:
    return read_message(data, _register_reply)


def decode_heartbeat(data: bytes) -> HeartbeatRequest:
    return read_message(data, _heartbeat)


def decode_heartbeat_sender(data: bytes) -> HeartbeatSender:
    return read_message(data, _heartbeat_sender)


def decode_heartbeat_reply(data: bytes) -> HeartbeatReply:
    return read_message(data, _heartbeat_reply)


_downloads = msgspec.json.Decoder(DownloadsRequest).decode
_downloads_reply = msgspec.json.Decoder(DownloadsReply).decode


def decode_downloads(data: bytes) -> DownloadsRequest:
    return read_message(data, _downloads)


def decode_downloads_reply(data: bytes) -> DownloadsReply:
    return read_message(data, _downloads_reply)


_facts = msgspec.json.Decoder(NodeFacts).decode


@lru_cache(maxsize=4096)  # read often, changed seldom
def decode_facts(stored: str | bytes) -> NodeFacts:
    """The stored facts of a node; empty if an older version stored facts that this one does not accept."""
    try:
        return _facts(stored)
    except msgspec.ValidationError:
        return NodeFacts()
