"""The bodies of `/api/node/*`, as in LocalAI; what only Corral knows travels in the field `corral`.

Byte counts are whole numbers; None is unknown. LocalAI's workers send 0 for a GPU memory they do not have, and 0 or
nothing for a disk they could not measure.
"""

from functools import lru_cache
from typing import Annotated

import msgspec

INSTANCE_HEADER = "X-Corral-Instance"
"""Which process speaks, where no body says so: an outdated one must not say good-bye for its successor."""

ByteCount = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
ShortText = Annotated[str, msgspec.Meta(max_length=255)]
LongText = Annotated[str, msgspec.Meta(max_length=512)]


Words = Annotated[list[ShortText], msgspec.Meta(max_length=128)]
Problems = Annotated[list[Annotated[str, msgspec.Meta(max_length=1000)]], msgspec.Meta(max_length=64)]


class GpuFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    vendor: ShortText
    name: ShortText | None = None
    memory_total_bytes: ByteCount | None = None
    memory_free_bytes: ByteCount | None = None
    unified: bool = False
    driver: ShortText | None = None
    compute_capability: ShortText | None = None


class NodeFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a Corral worker tells about its machine beyond LocalAI's fields."""

    version: ShortText | None = None
    platform: ShortText | None = None
    cpu_model: ShortText | None = None
    cpu_count: int | None = None
    cpu_flags: Words | None = None
    gpus: Annotated[list[GpuFacts], msgspec.Meta(max_length=64)] = []
    capability_reason: LongText | None = None
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
    node_type: str | None = None
    token: str | None = None
    total_vram: ByteCount | None = None
    available_vram: ByteCount | None = None
    total_ram: ByteCount | None = None
    available_ram: ByteCount | None = None
    total_disk: ByteCount | None = None
    available_disk: ByteCount | None = None
    gpu_vendor: ShortText | None = None
    gpu_compute_capability: ShortText | None = None
    capability: ShortText | None = None
    labels: dict[str, str] | None = None
    max_replicas_per_model: Annotated[int, msgspec.Meta(le=(1 << 31) - 1)] | None = None
    vram_budget: ShortText | None = None
    corral: CorralClaim | None = None


class ProcessGrant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node may go on running. In the answers to registrations and heartbeats of the node's own process."""

    leases_s: dict[str, Annotated[float, msgspec.Meta(gt=0)]] = {}
    """By process key: how long after sending its question the node may run it, if it hears nothing more. The whole
    table; a process that is not in it has no end."""
    given_away: dict[str, int] = {}
    """By process key: now runs elsewhere, to be ended at once. The number is a generation: a process that was ordered
    with a higher one is another."""


class CorralWelcome(msgspec.Struct, frozen=True, omit_defaults=True):
    epoch: int
    bus_url: str | None = None
    """Where the message bus is, as seen from the worker."""
    bus_anonymous: bool = False
    """There are no credentials to be had: the bus is open to everyone, by an administrator's wish."""
    credential_ttl_s: float | None = None
    """How long the credential lasts from now on: a duration, because clocks differ."""
    heartbeat_interval_s: float | None = None
    frontends: list[str] = []
    """Every frontend there is: when one dies, its workers go on with the others."""
    grant: ProcessGrant | None = None


class RegisterReply(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    node_type: str
    status: str
    created_at: str
    nats_jwt: str | None = None
    nats_user_seed: str | None = None
    corral: CorralWelcome | None = None


class CorralBeat(msgspec.Struct, frozen=True, omit_defaults=True):
    instance: str


class HeartbeatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    available_vram: ByteCount | None = None
    total_vram: ByteCount | None = None
    available_ram: ByteCount | None = None
    available_disk: ByteCount | None = None
    total_disk: ByteCount | None = None
    gpu_vendor: ShortText | None = None
    corral: CorralBeat | None = None


class HeartbeatReply(msgspec.Struct, frozen=True, omit_defaults=True):
    message: str = ""
    corral: ProcessGrant | None = None


decode_register = msgspec.json.Decoder(RegisterRequest).decode
decode_register_reply = msgspec.json.Decoder(RegisterReply).decode
decode_heartbeat = msgspec.json.Decoder(HeartbeatRequest).decode
decode_heartbeat_reply = msgspec.json.Decoder(HeartbeatReply).decode
decode_facts = lru_cache(maxsize=4096)(msgspec.json.Decoder(NodeFacts).decode)  # read often, told once
