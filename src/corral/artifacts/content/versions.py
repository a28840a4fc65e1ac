"""Installed backends on disk.

    backends/<name>/<version-digest>/...            one version, whole
    backends/<name>/<version-digest>/metadata.json
    backends/<name>/current -> <version-digest>     the atomic pointer

A version is built elsewhere and renamed into place, so a directory here is never half a version. Directories made by
LocalAI (`backends/<name>/run.sh`) are listed too.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corral.artifacts.content.manifest import LOCALAI_RUN, Manifest
from corral.artifacts.digests import Digest, hex_of
from corral.artifacts.disk.flush import exchange, settle_directory
from corral.artifacts.disk.staging import Staging
from corral.artifacts.errors import ArtifactError, BadReference, NotInstalled, VersionInUse, disk_errors
from corral.artifacts.signatures import SignaturePolicy
from corral.system import Ids

POINTER = "current"
METADATA = "metadata.json"
LOCALAI_STALE = (".install-tmp", ".upgrade-tmp")
LOCALAI_BACKUPS = (".install-backup", ".backup")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]{0,127}\Z")
_HEX = re.compile(r"[0-9a-f]{64}\Z")


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """LocalAI's metadata.json with additional fields of Corral."""

    name: str = ""
    alias: str = ""
    meta_backend_for: str = ""
    gallery_url: str = ""
    installed_at: str = ""
    version: str = ""
    uri: str = ""
    digest: str = ""
    # Corral's own fields.
    source: str = ""
    size_bytes: int = 0
    packed_bytes: int = 0
    install_seconds: float = 0.0
    verified_by: str = ""
    platform: str = ""
    layers: list[str] = []
    blobs: list[str] = []
    python_lock: list[str] = []
    manifest: Manifest | None = None
    signatures: SignaturePolicy | None = None
    """The signatures this version required. An upgrade from the same source requires them too."""


_decode = msgspec.json.Decoder(Metadata).decode
_UNREADABLE = (msgspec.DecodeError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledVersion:
    name: str
    path: Path
    metadata: Metadata
    current: bool
    made_by: str = "corral"

    @property
    def digest(self) -> str:
        return self.metadata.digest

    @property
    def manifest(self) -> Manifest:
        return self.metadata.manifest or LOCALAI_RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledBackend:
    """A backend on this machine with all its versions, newest first."""

    name: str
    versions: tuple[InstalledVersion, ...]
    problem: str = ""
    """Why the backend or one of its versions could not be read. Readable versions are still listed."""

    @property
    def current(self) -> InstalledVersion | None:
        return next((version for version in self.versions if version.current), None)


def directory_name(name: str) -> str:
    """The directory of a backend. A slash in a name becomes two underscores, as in LocalAI."""
    flat = name.replace("/", "__")
    if not _NAME.match(flat) or ".." in flat or flat == POINTER:
        raise BadReference(f"{name[:140]!r} is not a valid backend name.")
    return flat


class VersionStore:
    def __init__(self, root: Path, staging: Staging, ids: Ids) -> None:
        self._root = root
        self._staging = staging
        self._ids = ids
        root.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, digest: Digest) -> Path:
        return self._root / directory_name(name) / hex_of(digest)

    def find(self, name: str, digest: Digest) -> InstalledVersion | None:
        """None also for an unreadable version: an install replaces it."""
        path = self.path(name, digest)
        try:
            return self._read(directory_name(name), path)
        except _UNREADABLE:
            return None

    def current(self, name: str) -> InstalledVersion:
        backend = self.backend(name)
        if backend is None or backend.current is None:
            raise NotInstalled(f"Backend {name} is not installed here.")
        return backend.current

    def backend(self, name: str) -> InstalledBackend | None:
        path = self._root / directory_name(name)
        return self._read_backend(path) if path.is_dir() else None

    def list(self) -> tuple[InstalledBackend, ...]:
        found = [
            self._read_backend(path)
            for path in sorted(self._root.iterdir())
            if path.is_dir() and not path.name.startswith(".") and not path.name.endswith(_TEMPORARY)
        ]
        return tuple(backend for backend in found if backend.versions or backend.problem)

    def add(self, name: str, digest: Digest, staged: Path) -> Path:
        """Moves a finished tree into place. It was built on the same filesystem, so this is one rename."""
        path = self.path(name, digest)
        with disk_errors(f"adding {name}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                exchange(staged, path)  # `current` may point here, and must never point at nothing
                with _undone_on_error(lambda: exchange(staged, path)):
                    settle_directory(path.parent)
                self._staging.discard(staged)
            else:
                staged.rename(path)
                with _undone_on_error(lambda: path.rename(staged)):
                    settle_directory(path.parent)
        return path

    def write_metadata(self, path: Path, metadata: Metadata) -> None:
        staged = path / f".{METADATA}.{self._ids.uuid()}"
        with disk_errors(f"describing {metadata.name}"), _undone_on_error(lambda: staged.unlink(missing_ok=True)):
            with staged.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(metadata), indent=2))
                file.flush()
                os.fsync(file.fileno())
            staged.replace(path / METADATA)

    def make_current(self, name: str, digest: Digest) -> InstalledVersion:
        """Points `current` at an installed version. Readers see either the old version or the new one."""
        path = self.path(name, digest)
        if self.find(name, digest) is None:
            raise NotInstalled(f"Backend {name} has no version {digest} here.")
        before = _read_pointer(path.parent)
        with disk_errors(f"switching {name}"), _undone_on_error(lambda: self._point(path.parent, before)):
            self._point(path.parent, path.name)
            settle_directory(path.parent)
        if before is not None and before != path.name:
            with suppress(OSError):  # gone, or a disk that takes nothing: only garbage collection looks at it
                os.utime(path.parent / before)
        return self._read(path.parent.name, path)

    def _point(self, home: Path, version: str | None) -> None:
        if version is None:
            (home / POINTER).unlink(missing_ok=True)
            return
        staged = home / f".{POINTER}.{self._ids.uuid()}"
        with _undone_on_error(lambda: staged.unlink(missing_ok=True)):
            os.symlink(version, staged)
            staged.replace(home / POINTER)

    def rollback(self, name: str, to: Digest | None) -> InstalledVersion:
        backend = self.backend(name)
        if backend is None or backend.current is None:
            raise NotInstalled(f"Backend {name} is not installed here.")
        if to is not None:
            return self.make_current(name, to)
        installed_at = backend.current.metadata.installed_at
        earlier = [
            version
            for version in backend.versions
            if not version.current and version.made_by == "corral" and version.metadata.installed_at <= installed_at
        ]
        if not earlier:
            raise NotInstalled(f"Backend {name} has no earlier version here to roll back to.")
        return self.make_current(name, Digest(earlier[0].digest))

    def remove(self, name: str, running: Callable[[Path], bool]) -> None:
        path = self._root / directory_name(name)
        if not path.is_dir():
            raise NotInstalled(f"Backend {name} is not installed here.")
        if running(path):
            raise VersionInUse(f"A process still uses backend {name}. Stop it first.")
        with disk_errors(f"removing {name}"):
            self._staging.discard(path)

    def remove_version(self, version: InstalledVersion, *, behind: bool = False) -> None:
        with disk_errors(f"removing a version of {version.name}"):
            self._staging.discard(version.path, behind=behind)

    def surplus(self, keep: int, running: Callable[[Path], bool]) -> Collection[InstalledVersion]:
        """Versions that garbage collection may remove: not current, not among the `keep` that were current last, not
        running. Last, not newest: a version that never worked must not displace the one before it."""
        taken: list[InstalledVersion] = []
        for backend in self.list():
            others = [version for version in backend.versions if not version.current and version.made_by == "corral"]
            others.sort(key=lambda version: _left_at_s(version.path), reverse=True)
            kept = max(0, keep - (1 if backend.current else 0))
            taken += [version for version in others[kept:] if not running(version.path)]
        return taken

    def sweep(self) -> None:
        """Repairs the state after a crash: stray pointers, empty directories, and LocalAI's unfinished swaps."""
        for path in sorted(self._root.iterdir()):
            if not path.is_dir() or path.is_symlink():
                continue
            if path.name.endswith(LOCALAI_STALE):
                self._staging.discard(path)
            elif path.name.endswith(LOCALAI_BACKUPS):
                self._restore(path)
            else:
                for stray in path.glob(f".{POINTER}.*"):
                    stray.unlink(missing_ok=True)
                for stray in path.glob(f"*/.{METADATA}.*"):
                    stray.unlink(missing_ok=True)

    def _restore(self, backup: Path) -> None:
        """LocalAI moves the old directory aside first. A crash then leaves only that backup."""
        suffix = next(suffix for suffix in LOCALAI_BACKUPS if backup.name.endswith(suffix))
        original = backup.with_name(backup.name.removesuffix(suffix))
        if original.exists():
            self._staging.discard(backup)
        else:
            backup.rename(original)

    def _read_backend(self, path: Path) -> InstalledBackend:
        try:
            if not (path / POINTER).is_symlink() and ((path / "run.sh").is_file() or (path / METADATA).is_file()):
                return InstalledBackend(name=path.name, versions=(self._read_localai(path),))
            homes = [child for child in path.iterdir() if _HEX.match(child.name) and (child / METADATA).is_file()]
        except _UNREADABLE as error:
            return InstalledBackend(name=path.name, versions=(), problem=f"{path.name} cannot be read: {error}")
        versions, problems = [], []
        for home in homes:
            try:
                versions.append(self._read(path.name, home))
            except _UNREADABLE as error:
                problems.append(f"{path.name}/{home.name[:12]} cannot be read: {error}. Install it again.")
        versions.sort(key=lambda version: (version.metadata.installed_at, version.digest), reverse=True)
        return InstalledBackend(name=path.name, versions=tuple(versions), problem=" ".join(sorted(problems)))

    def _read(self, name: str, path: Path) -> InstalledVersion:
        metadata = _decode((path / METADATA).read_bytes())
        return InstalledVersion(
            name=name, path=path, metadata=metadata, current=_read_pointer(path.parent) == path.name
        )

    def _read_localai(self, path: Path) -> InstalledVersion:
        file = path / METADATA
        metadata = _decode(file.read_bytes()) if file.is_file() else Metadata(name=path.name)
        home = path
        if metadata.meta_backend_for:
            home = self._root / directory_name(metadata.meta_backend_for)
        return InstalledVersion(name=path.name, path=home, metadata=metadata, current=True, made_by="localai")


_TEMPORARY = LOCALAI_STALE + LOCALAI_BACKUPS


def _read_pointer(home: Path) -> str | None:
    try:
        return os.readlink(home / POINTER)
    except OSError:
        return None


def _left_at_s(version: Path) -> float:
    """When another version became current."""
    try:
        return version.stat().st_mtime
    except OSError:
        return 0.0


@contextmanager
def _undone_on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Undoes a failed change, as far as the disk allows."""
    try:
        yield
    except (OSError, ArtifactError):
        with suppress(OSError):  # the first failure is the one to tell
            undo()
        raise
