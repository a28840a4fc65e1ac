"""Garbage collection: surplus versions, then whatever no version needs any more."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from corral.artifacts.cancel import CancelToken
from corral.artifacts.install import Installer
from corral.artifacts.locks import held
from corral.artifacts.running import is_used, paths_in_use


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    versions: tuple[str, ...]
    """`name@digest` of each removed version."""
    layers: int
    blobs: int
    bytes: int


def collect_garbage(installer: Installer, keep: int, in_use: Collection[Path], cancel: CancelToken) -> Freed:
    """Waits until no install runs: a layer that was just unpacked belongs to no version yet."""
    with held(installer.locks_dir, "collect", cancel):
        used = {*(path.resolve() for path in in_use), *paths_in_use(installer.settings.backends_dir)}
        removed = []
        for version in installer.versions.surplus(keep, lambda path: is_used(path, used)):
            cancel.check()
            installer.versions.remove_version(version)
            removed.append(f"{version.name}@{version.digest}")
        layers, blobs, freed = _unneeded(installer, cancel)
        installer.resolver.builds.sweep()
        installer.blobs.sweep_locks()
        installer.layers.sweep_locks()
        return Freed(versions=tuple(removed), layers=layers, blobs=blobs, bytes=freed)


def _unneeded(installer: Installer, cancel: CancelToken) -> tuple[int, int, int]:
    """How many layers and blobs went, and what they weighed: others may write to the same disk meanwhile."""
    needed_layers: set[str] = set()
    needed_blobs: set[str] = set()
    for backend in installer.versions.list():
        for version in backend.versions:
            needed_layers |= set(version.metadata.layers)
            needed_blobs |= set(version.metadata.blobs)
    if not installer.settings.keep_blobs:
        needed_blobs.clear()
    layers = blobs = freed = 0
    for key in installer.layers.stored_keys():
        cancel.check()
        if key not in needed_layers:
            layer = installer.layers.find(key)
            freed += layer.index().unpacked_bytes if layer is not None else 0
            installer.layers.remove(key)
            layers += 1
    for digest in list(installer.blobs.digests()):
        # A second link means that a model's file is this blob.
        if digest not in needed_blobs and installer.blobs.path(digest).stat().st_nlink == 1:
            freed += installer.blobs.remove(digest)
            blobs += 1
    return layers, blobs, freed
