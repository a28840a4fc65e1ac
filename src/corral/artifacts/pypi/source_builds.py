"""Source packages made into wheels, where an operator allows it. Building runs the package's code, so it happens in
a child process that is given nothing of ours, and only what comes out of it goes on: as a wheel like any other.

    data_dir/builds/<source digest>-<python>   which wheel was built of a source, so that it is not built again
"""

import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import structlog
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob, BlobStore, FileSource, place
from corral.artifacts.digests import Digest, hex_of
from corral.artifacts.disk.locks import held
from corral.artifacts.disk.space import SpaceReservations
from corral.artifacts.disk.staging import Staging, remove_tree
from corral.artifacts.errors import BuildFailed, Cancelled, disk_errors
from corral.artifacts.net.host_policy import is_loopback
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.pypi.build_process import build_environment, run_build
from corral.artifacts.pypi.interpreters import Interpreter, own_interpreter
from corral.artifacts.settings import PypiSettings
from corral.system import Clock
from corral.system.json import decode_json

log = structlog.get_logger()

LINES_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source package of an index, and the package and version it must produce."""

    package: str
    version: Version
    filename: str
    digest: Digest
    blob: Blob


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltWheel:
    filename: str
    digest: Digest
    size: int
    path: Path
    """A second link to the blob. While it exists, the blob is not removed to free space."""
    found: bool
    """Whether an earlier build produced it."""


class _Record(msgspec.Struct, frozen=True):
    filename: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBuilds:
    root: Path
    locks_dir: Path
    settings: PypiSettings
    blobs: BlobStore
    staging: Staging
    reservations: SpaceReservations
    clock: Clock
    program: str = sys.executable
    """The Python whose pip builds."""
    python: Interpreter = field(default_factory=own_interpreter)
    """The interpreter that wheels are built for."""

    def for_python(self, python: Interpreter) -> "SourceBuilds":
        return self if python.own else replace(self, program=python.path, python=python)

    def build(self, source: Source, keep_in: Path, cancel: CancelToken) -> BuiltWheel:
        """The wheel of a source package: the stored one of an earlier build, else fetched, verified and built."""
        with held(self.locks_dir, f"build-{hex_of(source.digest)}", cancel):
            record = self._recorded(source)
            found = record is not None
            if record is None:
                record = self._build(source, cancel)
                self._remember(source, record)
            digest = Digest(record.digest)
            kept = keep_in / record.filename
            place(self.blobs.path(digest), kept, token="build")
            return BuiltWheel(filename=record.filename, digest=digest, size=kept.stat().st_size, path=kept, found=found)

    def forget(self, source: Source, built: BuiltWheel) -> None:
        """Removes what the builds of this install added."""
        if not built.found:
            self.blobs.remove(built.digest)
            self._record_path(source).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Removes records of wheels that no longer exist."""
        for path in sorted(self.root.glob("*")):
            record = _read(path)
            if record is None or not self.blobs.find(Digest(record.digest)):
                path.unlink(missing_ok=True)

    def _record_path(self, source: Source) -> Path:
        return self.root / f"{hex_of(source.digest)}-{self.python.version}"

    def _recorded(self, source: Source) -> _Record | None:
        record = _read(self._record_path(source))
        return record if record is not None and self.blobs.find(Digest(record.digest)) else None

    def _remember(self, source: Source, record: _Record) -> None:
        staged = self.staging.new_path()
        with disk_errors("noting a build"):
            self.root.mkdir(exist_ok=True)
            staged.write_bytes(msgspec.json.encode(record))
            staged.replace(self._record_path(source))

    def _build(self, source: Source, cancel: CancelToken) -> _Record:
        started_s = self.clock.monotonic_s()
        root = self.staging.new_path()
        try:
            needed = self.blobs.bytes_missing(source.blob) + (source.blob.size or 0)
            with self.reservations.reserve(needed, source.filename):
                self.blobs.fetch(source.blob, cancel, ProgressMeter(None, self.clock))
                wheel = self._run(source, root, cancel)
                _check_built(source, wheel, self.python)
                built = Blob(
                    name=wheel.name,
                    digest=None,
                    size=wheel.stat().st_size,
                    sources=(FileSource(wheel),),
                    resumable=False,
                    identity=f"built\0{source.digest}\0{self.python.version}",
                )
                digest = self.blobs.fetch(built, cancel, ProgressMeter(None, self.clock))
        except Cancelled as error:
            if not error.keep_partials:
                self._drop_source(source)
            raise
        except BuildFailed:
            self._drop_source(source)
            raise
        finally:
            remove_tree(root)
        self._drop_source(source)  # the wheel is what is needed from now on
        took_s = round(self.clock.monotonic_s() - started_s, 3)
        log.info("artifact.source_built", package=source.package, source=source.digest, wheel=digest, took_s=took_s)
        return _Record(filename=wheel.name, digest=digest)

    def _drop_source(self, source: Source) -> None:
        self.blobs.discard_partial(source.blob)
        self.blobs.remove(source.digest)

    def _run(self, source: Source, root: Path, cancel: CancelToken) -> Path:
        home, temporary, work, out = (root / name for name in ("home", "tmp", "work", "out"))
        with disk_errors(f"preparing the build of {source.filename}"):
            for directory in (root, home, temporary, work, out):
                directory.mkdir(mode=0o700)
            # A copy: through a link the build could change the verified blob itself.
            shutil.copyfile(self.blobs.path(source.digest), work / source.filename)
        finished = run_build(
            self._command(work / source.filename, out),
            environment=build_environment(home, temporary),
            directory=work,
            limit_s=self.settings.build_limit_s,
            clock=self.clock,
            cancel=cancel,
        )
        if finished.exit_code is None:
            raise BuildFailed(
                f"{source.filename} was not built within {self.settings.build_limit_s:g} s, so the build was stopped."
                f"{_last_output(finished.output)}"
            )
        if finished.output.strip() == f"{self.program}: No module named pip":
            raise BuildFailed(
                f"{source.filename} cannot be built: Python {self.python.version} has no pip."
                f" `{self.program} -m ensurepip` adds it."
            )
        if finished.exit_code != 0:
            raise BuildFailed(
                f"{source.filename} could not be built (pip exited with {finished.exit_code})."
                f"{_last_output(finished.output)}"
            )
        wheels = [path for path in out.iterdir() if path.suffix == ".whl" and path.is_file() and not path.is_symlink()]
        if len(wheels) != 1:
            raise BuildFailed(f"The build of {source.filename} produced {len(wheels)} wheels instead of one.")
        return wheels[0]

    def _command(self, archive: Path, out: Path) -> list[str]:
        """The index's login is not passed on: code that pip runs could read it."""
        index = urlsplit(self.settings.index_url)
        plain = index.scheme == "http" and not is_loopback(index.hostname or "")
        return [
            *(self.program, "-I", "-m", "pip", "wheel", "--no-deps", "--no-cache-dir"),
            *("--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
            *("--index-url", self.settings.index_url),
            *(("--trusted-host", index.netloc) if plain else ()),
            *("--wheel-dir", str(out), str(archive)),
        ]


def _read(path: Path) -> _Record | None:
    try:
        return decode_json(path.read_bytes(), _Record)
    except (OSError, msgspec.DecodeError):
        return None


def _check_built(source: Source, wheel: Path, python: Interpreter) -> None:
    """A build must produce the requested package and version, for this interpreter."""
    try:
        package, version, _, tags = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise BuildFailed(f"The build of {source.filename} produced {wheel.name[:120]!a}: {error}.") from error
    if canonicalize_name(package) != source.package or version != source.version:
        raise BuildFailed(f"The build of {source.filename} produced {wheel.name}, which is another package or version.")
    if tags.isdisjoint(python.ranks):
        raise BuildFailed(
            f"The build of {source.filename} produced {wheel.name}, which Python {python.version} cannot use."
        )


def _last_output(output: str) -> str:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()][-LINES_SHOWN:]
    return " Its last output:\n" + "\n".join(lines) if lines else " It had no output."
