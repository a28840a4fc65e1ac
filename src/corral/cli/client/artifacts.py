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
            raise NoVariantFits(f"{error} Set the capability of the target node with --capability.") from error
        raise NotInstalled(" ".join([str(error), *await hints(artifacts, catalogue, name)])) from error


def is_known(catalogue: Catalogue, name: str) -> bool:
    return (name.partition("@")[2] or name).lower() in catalogue.by_name


async def hints(artifacts: Artifacts, catalogue: Catalogue, name: str) -> list[str]:
    """What may be wrong with a name that no backend has."""
    found = [f"Gallery {status.name}: {status.problem}" for status in catalogue.galleries if status.problem]
    try:
        models = {entry.name.lower() for entry in await artifacts.read_models()}
    except ArtifactError:
        models = set()
    if name.lower() in models:
        return [*found, "A model has that name: add --model."]
    if close := get_close_matches(name.lower(), catalogue.by_name, n=3):
        found.append(f"Did you mean {' or '.join(catalogue.by_name[match].name for match in close)}?")
    return [*found, f"`{command('artifacts list --available')}` lists all backends."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuery:
    name: str
    capability: str
    variant: str = ""
    memory_bytes: int | None = None


async def pick(artifacts: Artifacts, query: ModelQuery) -> tuple[ModelEntry, PickedBuild]:
    return await artifacts.pick_model(
        await artifacts.read_models(),
        query.name,
        capability=query.capability,
        memory_bytes=query.memory_bytes or _own_memory_bytes(query.capability),
        catalogue=await artifacts.read_catalogue(),
        pin=query.variant,
    )


def _own_memory_bytes(capability: str) -> int | None:
    """The memory of this machine, for models that run on the CPU. GPU memory is not detected here."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if capability == "default" else None


async def model_facts(artifacts: Artifacts, query: ModelQuery) -> dict[str, Any]:
    """What `pull --model` would download. Reads only the gallery, not the hub that hosts the files."""
    entry, picked = await pick(artifacts, query)
    model = await artifacts.read_model(entry)
    files = [
        {"filename": file.filename, "uri": file.uri, "digest": sha256_digest(file.sha256) if file.sha256 else None}
        for file in model.files
    ]
    return {
        "name": query.name,
        "capability": query.capability,
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
