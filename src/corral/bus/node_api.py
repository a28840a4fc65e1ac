"""The bodies of `/api/node/*`, as in LocalAI; what only Corral knows travels in the field `corral`.

Byte counts are whole numbers; None is unknown. LocalAI's workers send 0 for a GPU memory they do not have, and 0 or
nothing for a disk they could not measure.
"""

from functools import lru_cache
from typing import Annotated

import msgspec

from corral.bus.limits import PROCESSES_MOST, Amount, Count, Counts, Name, Text, read_message

INSTANCE_HEADER = "X-Corral-Instance"
"""Which process speaks, where no body says so: an outdated one must not say good-bye for its successor."""

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
    """What a Corral worker tells about its machine beyond LocalAI's fields."""

    version: ShortText | None = None
    platform: ShortText | None = None
    cpu_model: ShortText | None = None
    cpu_count: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)] | None = None
    cpu_flags: Words | None = None
    gpus: Annotated[list[GpuFacts], msgspec.Meta(max_length=64)] = []
    capability_reason: LongText | None = None
    isolation: ShortText | None = None
    """How far its backends are contained: `full`, `partial` or `none`."""
    isolation_reason: LongText | None = None
    problems: Problems = []


class CorralClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    node_key: Annotated[str, msgspec.Meta(min_length=32, max_length=128)]
    """The secret this machine keeps; made by itself, known to no other."""
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
    corral: CorralClaim | None = None


class ProcessGrant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node may go on running. In the answers to registrations and heartbeats of the node's own process."""

    leases_s: Annotated[
        dict[Name, Annotated[float, msgspec.Meta(gt=0, le=1e9)]], msgspec.Meta(max_length=PROCESSES_MOST)
    ] = {}
    """By process key: how long after sending its question the node may run it, if it hears nothing more. The whole
    table; a process that is not in it has no end."""
    revoked: Counts = {}
    """By process key: now runs elsewhere, to be ended at once. The number is a generation: a process that was ordered
    with a higher one is another."""


class CorralWelcome(msgspec.Struct, frozen=True, omit_defaults=True):
    epoch: Count
    bus_url: Text | None = None
    """Where the message bus is, as seen from the worker."""
    bus_anonymous: bool = False
    """There are no credentials to be had: the bus is open to everyone, by an administrator's wish."""
    credential_ttl_s: Amount | None = None
    """How long the credential lasts from now on: a duration, because clocks differ."""
    heartbeat_interval_s: Amount | None = None
    frontends: Annotated[list[Text], msgspec.Meta(max_length=PROCESSES_MOST)] = []
    """Every frontend there is: when one dies, its workers go on with the others."""
    grant: ProcessGrant | None = None
    waiting_for: Text | None = None
    """What has to happen before this machine may work, for people."""


class RegisterReply(msgspec.Struct, frozen=True, omit_defaults=True):
    id: Name
    name: Name
    node_type: Name
    status: Name
    created_at: Name
    nats_jwt: Text | None = None
    nats_user_seed: Name | None = None
    corral: CorralWelcome | None = None


class NodeCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: ShortText
    reason: LongText
    remedy: LongText = ""


class CorralBeat(msgspec.Struct, frozen=True, omit_defaults=True):
    instance: Annotated[str, msgspec.Meta(max_length=64)]
    sent_at_ms: Count | None = None
    """By the worker's clock, which is compared with the frontend's."""
    conditions: Annotated[list[NodeCondition], msgspec.Meta(max_length=16)] | None = None
    """Everything that keeps the machine from taking new work; None from a worker that does not tell."""


class HeartbeatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    available_vram: Count | None = None
    total_vram: Count | None = None
    available_ram: Count | None = None
    available_disk: Count | None = None
    total_disk: Count | None = None
    gpu_vendor: ShortText | None = None
    corral: CorralBeat | None = None


class HeartbeatReply(msgspec.Struct, frozen=True, omit_defaults=True):
    message: Text = ""
    corral: ProcessGrant | None = None


class SendingProcess(msgspec.Struct, frozen=True):
    instance: Annotated[str, msgspec.Meta(max_length=64)]


class BeatSender(msgspec.Struct, frozen=True):
    """All that must be readable of a heartbeat: which process sends it."""

    corral: SendingProcess | None = None


_register = msgspec.json.Decoder(RegisterRequest).decode
_register_reply = msgspec.json.Decoder(RegisterReply).decode
_heartbeat = msgspec.json.Decoder(HeartbeatRequest).decode
_beat_sender = msgspec.json.Decoder(BeatSender).decode
_heartbeat_reply = msgspec.json.Decoder(HeartbeatReply).decode

# Each raises InvalidInput and nothing else.


def decode_register(data: bytes) -> RegisterRequest:
    return read_message(data, _register)


def decode_register_reply(data: bytes) -> RegisterReply:
    return read_message(data, _register_reply)


def decode_heartbeat(data: bytes) -> HeartbeatRequest:
    return read_message(data, _heartbeat)


def decode_beat_sender(data: bytes) -> BeatSender:
    return read_message(data, _beat_sender)


def decode_heartbeat_reply(data: bytes) -> HeartbeatReply:
    return read_message(data, _heartbeat_reply)


_facts = msgspec.json.Decoder(NodeFacts).decode


@lru_cache(maxsize=4096)  # read often, told once
def decode_facts(stored: str | bytes) -> NodeFacts:
    """Of what the store keeps. A row that an older version accepted and this one would refuse tells nothing."""
    try:
        return _facts(stored)
    except msgspec.ValidationError:
        return NodeFacts()
