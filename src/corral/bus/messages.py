"""What travels on the bus. Unknown fields are ignored; an absent field stays absent, it never becomes zero."""

import msgspec


class RunningModel(msgspec.Struct, frozen=True, omit_defaults=True):
    model_id: str
    replica_index: int
    address: str | None = None


class ModelsRunningReply(msgspec.Struct, frozen=True, omit_defaults=True):
    models: list[RunningModel]
    error: str | None = None


class PingReply(msgspec.Struct, frozen=True):
    """Corral's own."""

    node: str
    instance: str
    epoch: int
    version: str


class NodesChanged(msgspec.Struct, frozen=True):
    """Corral's own. A hint: whoever hears it reads the store."""

    frontend: str


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)
