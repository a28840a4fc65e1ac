"""Preinstalled backends: LocalAI's system directories without metadata, which Corral does not change."""

from pathlib import Path

from corral.artifacts import InstalledBackend, InstalledVersion
from corral.artifacts.content.versions import Metadata
from corral.core.errors import Conflict
from corral.system import Disk

SYSTEM = "system"


class SystemBackend(Conflict):
    code = "system_backend"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(
            f"{name} is preinstalled in {path} and cannot be upgraded or deleted by Corral; change it on the machine"
        )


def read_system_backends(root: Path, disk: Disk) -> dict[str, InstalledBackend]:
    """Blocking. Empty if the directory is missing or unreadable."""
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
