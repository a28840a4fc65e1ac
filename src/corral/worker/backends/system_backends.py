"""Backends that came with the system: LocalAI's directories, without metadata, that are not ours to change."""

from pathlib import Path

from corral.artifacts import InstalledBackend, InstalledVersion
from corral.artifacts.content.versions import Metadata
from corral.core.errors import Conflict
from corral.system import Disk

SYSTEM = "system"


class SystemBackend(Conflict):
    code = "system_backend"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(f"{name} came with the system ({path}); it is used from there, never upgraded or deleted")


def read_system_backends(root: Path, disk: Disk) -> dict[str, InstalledBackend]:
    """Blocking. A directory that is not there, or not for us to read, holds none."""
    try:
        homes = [home for home in disk.list(root) if home / "run.sh" in disk.list(home)]
    except OSError:
        return {}
    return {home.name: _backend(home) for home in homes}


def _backend(home: Path) -> InstalledBackend:
    version = InstalledVersion(
        name=home.name, path=home, metadata=Metadata(name=home.name), current=True, made_by=SYSTEM
    )
    return InstalledBackend(name=home.name, versions=(version,))


def is_system(backend: InstalledBackend) -> bool:
    return backend.current is not None and backend.current.made_by == SYSTEM
