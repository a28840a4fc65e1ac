"""Picks the build of a gallery model that suits a node."""

from collections.abc import Callable, Sequence

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import ArtifactError, NotInstalled
from corral.artifacts.galleries.catalogue import read_model
from corral.artifacts.galleries.entries import ModelEntry
from corral.artifacts.galleries.sources import GallerySources
from corral.core.models.variants import ModelBuild, PickedBuild, pick_build
from corral.core.sizes import read_size_bytes


def pick_model(
    sources: GallerySources,
    entries: Sequence[ModelEntry],
    name: str,
    *,
    capability: str,
    memory_bytes: int | None,
    runs_here: Callable[[str], bool],
    pin: str,
    cancel: CancelToken,
) -> tuple[ModelEntry, PickedBuild]:
    """The entry to install for the model `name`: itself, or the variant that suits the node better."""
    by_name: dict[str, ModelEntry] = {}
    for entry in entries:
        by_name.setdefault(entry.name.lower(), entry)
    wanted = by_name.get(name.lower())
    if wanted is None:
        raise NotInstalled(f"No gallery has a model named {name}.")
    variants = [by_name[variant.model.lower()] for variant in wanted.variants if variant.model.lower() in by_name]
    picked = pick_build(
        _build(sources, wanted, cancel),
        [_build(sources, variant, cancel) for variant in variants],
        capability=capability,
        memory_bytes=memory_bytes,
        runs_here=runs_here,
        pin=by_name[pin.lower()].name if pin.lower() in by_name else pin,
    )
    if picked is None:
        offered = ", ".join([wanted.name, *(variant.name for variant in variants)])
        raise NotInstalled(f"{wanted.name} has no build named {pin}; it has {offered}.")
    return by_name[picked.name.lower()], picked


def _build(sources: GallerySources, entry: ModelEntry, cancel: CancelToken) -> ModelBuild:
    return ModelBuild(
        name=entry.name,
        backend=_backend(sources, entry, cancel),
        size_bytes=read_size_bytes(entry.size),
        tags=tuple(entry.tags),
    )


def _backend(sources: GallerySources, entry: ModelEntry, cancel: CancelToken) -> str:
    """Most entries name their backend; for the others the base file is read. Unknown if that fails."""
    named = str(entry.overrides.get("backend", "") or "")
    if named or (not entry.url and not entry.config_file):
        return named or entry.backend
    try:
        return read_model(sources, entry, cancel).backend
    except ArtifactError:
        return ""
