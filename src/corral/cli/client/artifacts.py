"""Names of backends and models as a person types them, looked up in the galleries of this machine."""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from corral.artifacts import Artifacts, BackendRequest, Catalogue, KeptFile, ModelEntry
from corral.artifacts.digests import sha256_digest
from corral.artifacts.errors import ArtifactError, NotInstalled, NoVariantFits
from corral.cli.program_name import command
from corral.core.models.variants import PickedBuild


async def request_for_name(artifacts: Artifacts, name: str, capability: str, *, substitute: bool) -> BackendRequest:
    catalogue = await artifacts.read_catalogue()
    try:
        return artifacts.request_for(catalogue, name, capability, substitute=substitute)
    except NoVariantFits as error:
        if is_known(catalogue, name):
            raise NoVariantFits(f"{error} Name the kind of node it is meant for with --capability.") from error
        raise NotInstalled(" ".join([str(error), *await hints(artifacts, catalogue, name)])) from error


def is_known(catalogue: Catalogue, name: str) -> bool:
    return (name.partition("@")[2] or name).lower() in catalogue.by_name


async def hints(artifacts: Artifacts, catalogue: Catalogue, name: str) -> list[str]:
    """Why a name of no backend may have been typed."""
    found = [f"Gallery {status.name}: {status.problem}" for status in catalogue.galleries if status.problem]
    try:
        models = {entry.name.lower() for entry in await artifacts.read_models()}
    except ArtifactError:
        models = set()
    if name.lower() in models:
        return [*found, "There is a model of that name: add --model."]
    if close := get_close_matches(name.lower(), catalogue.by_name, n=3):
        found.append(f"Did you mean {' or '.join(catalogue.by_name[match].name for match in close)}?")
    return [*found, f"`{command('artifacts list --available')}` shows what there is."]


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
