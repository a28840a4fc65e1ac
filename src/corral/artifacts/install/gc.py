"""Garbage collection: surplus versions, then layers and blobs that no version needs."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.versions import InstalledVersion, directory_name
from corral.artifacts.disk.in_use import is_used, paths_in_use
from corral.artifacts.disk.locks import held
from corral.artifacts.install.installer import Installer


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    versions: tuple[str, ...]
    """`name@digest` of each removed version."""
    layers: int
    blobs: int
    bytes: int


def collect_garbage(
    installer: Installer,
    keep: int,
    in_use: Collection[Path],
    cancel: CancelToken,
    *,
    spare_s: float = 0.0,
    released: Collection[str] = (),
) -> Freed:
    """Waits until no install runs, because a layer that was just unpacked belongs to no version yet. Unneeded parts
    stay for `spare_s`, because a failed install may be retried; parts that were `released`, or belonged to versions
    removed now, do not. Installs wait only until the parts are moved away, not until they are removed."""

    @cache
    def used() -> set[Path]:  # looked for only where there is something to remove
        return {*(path.resolve() for path in in_use), *paths_in_use(installer.settings.backends_dir)}

    with held(installer.locks_dir, "collect", cancel):
        removed = list(_remove_surplus(installer, keep, lambda path: is_used(path, used()), cancel))
        gone = {*released, *(key for version in removed for key in parts_of(version))}
        newest_ms = installer.clock.now_ms() - spare_s * 1000
        layers, blobs, freed = _remove_unneeded(installer, gone, newest_ms, cancel)
        installer.resolver.builds.sweep()
        installer.blobs.sweep_locks()
        installer.layers.sweep_locks()
        names = tuple(f"{version.name}@{version.digest}" for version in removed)
        return Freed(versions=names, layers=layers, blobs=blobs, bytes=freed)


def parts_of(version: InstalledVersion) -> tuple[str, ...]:
    """The layers and blobs of the version."""
    return (*version.metadata.layers, *version.metadata.blobs)


def _remove_surplus(
    installer: Installer, keep: int, running: Callable[[Path], bool], cancel: CancelToken
) -> Iterator[InstalledVersion]:
    for version in installer.versions.surplus(keep, running):
        cancel.check()
        with held(installer.locks_dir, f"backend-{directory_name(version.name)}", cancel):
            backend = installer.versions.backend(version.name)
            if backend is None or backend.current is None or backend.current.path == version.path:
                continue  # somebody rolled back to it, or deleted all of them, since we looked
            installer.versions.remove_version(version, behind=True)
        yield version


def _remove_unneeded(
    installer: Installer, gone: Collection[str], newest_ms: float, cancel: CancelToken
) -> tuple[int, int, int]:
    """The number of removed layers and blobs, and their size. Free disk space does not tell: others write to it too."""
    needed = {key for backend in installer.versions.list() for version in backend.versions for key in parts_of(version)}
    layers = blobs = freed = 0

    def is_spared(key: str, path: Path) -> bool:
        return key not in gone and path.stat().st_mtime * 1000 > newest_ms

    for key in installer.layers.stored_keys():
        cancel.check()
        layer = installer.layers.find(key)
        if key in needed or (layer is not None and is_spared(key, layer.path)):
            continue
        freed += layer.index().unpacked_bytes if layer is not None else 0
        installer.layers.remove(key, behind=True)
        layers += 1
    for digest in list(installer.blobs.digests()):
        path = installer.blobs.path(digest)
        kept = digest in needed and installer.settings.keep_blobs
        # A second link means that a model's file is this blob.
        if kept or path.stat().st_nlink > 1 or is_spared(digest, path):
            continue
        freed += installer.blobs.remove(digest)
        blobs += 1
    installer.known_weights.forget(set(installer.blobs.digests()))
    return layers, blobs, freed
