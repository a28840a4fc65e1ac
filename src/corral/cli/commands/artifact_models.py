"""Models of galleries and weights on this machine, as `corral artifacts` shows them."""

import os
from dataclasses import dataclass
from typing import Any

from corral.artifacts import Artifacts, KeptFile, ModelEntry
from corral.artifacts.digests import sha256_digest
from corral.core.models.variants import PickedBuild


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedModel:
    name: str
    capability: str
    variant: str = ""
    memory_bytes: int | None = None


async def pick(artifacts: Artifacts, wanted: WantedModel) -> tuple[ModelEntry, PickedBuild]:
    return await artifacts.pick_model(
        await artifacts.read_models(),
        wanted.name,
        capability=wanted.capability,
        memory_bytes=wanted.memory_bytes or _own_memory_bytes(wanted.capability),
        catalogue=await artifacts.read_catalogue(),
        pin=wanted.variant,
    )


def _own_memory_bytes(capability: str) -> int | None:
    """Of this machine, where models run in it. What a GPU has is not asked here."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if capability == "default" else None


async def model_facts(artifacts: Artifacts, wanted: WantedModel) -> dict[str, Any]:
    """What `pull --model` would fetch. Only the gallery is read: a hub's files are not asked for."""
    entry, picked = await pick(artifacts, wanted)
    model = await artifacts.read_model(entry)
    files = [
        {"filename": file.filename, "uri": file.uri, "digest": sha256_digest(file.sha256) if file.sha256 else None}
        for file in model.files
    ]
    return {
        "name": wanted.name,
        "capability": wanted.capability,
        "reason": picked.reason,
        "entry": entry.name,
        "gallery": entry.gallery,
        "backend": model.backend,
        "size": entry.size,
        "license": entry.license,
        "files": files,
        "config": model.config,
    }


def weights_facts(file: KeptFile) -> dict[str, Any]:
    return {
        "kind": "weights",
        "name": file.name,
        "digest": file.digest,
        "path": str(file.path),
        "size_bytes": file.size,
    }


__all__ = ["WantedModel", "model_facts", "pick", "weights_facts"]
