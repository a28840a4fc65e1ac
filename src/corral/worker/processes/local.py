"""Local processes: starts them under a shim and finds those that an earlier worker left running."""

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from corral.core.errors import InvalidInput, Unavailable
from corral.core.processes.process import Fill, ProcessRecord, ProcessSpec, TreeUsage
from corral.system import Clock, Ids
from corral.worker.hardware.nvml import Nvml
from corral.worker.processes import shim as shim_program
from corral.worker.processes.allowed_paths import Reach
from corral.worker.processes.cgroups import Group, Groups, open_group
from corral.worker.processes.confinement import plan_confinement
from corral.worker.processes.environment import plan_environment
from corral.worker.processes.handle import LocalProcess, read_directory_id, read_file_ids
from corral.worker.processes.isolation import Isolation
from corral.worker.processes.logs import LogLimits, ProcessLogs
from corral.worker.processes.machine_port import Process
from corral.worker.processes.records import RecordDirectory, Records, StartRecord, read_boot_id
from corral.worker.processes.stats import read_gpu_memory_by_pid
from corral.worker.processes.tree import MARKER_VARIABLE, ProcessTree
from corral.worker.processes.uvm import ensure_uvm

log = structlog.get_logger()

_SHIM_WITHIN_S = 20.0  # a shim starts in 30 ms; a swapping machine takes longer
_SHIM = (sys.executable, "-I", "-S", shim_program.__file__)


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    state: Path
    environment: Mapping[str, str] = field(repr=False)  # of the worker; backends inherit an allowlist of it
    pass_on: tuple[str, ...] = ()  # additional variables that the administrator passes to backends
    isolation: Isolation
    private: tuple[Path, ...] = ()  # Corral's own directories; a backend can access only its own files in them
    weights: tuple[Path, ...] = ()  # directories inside the private ones that hold model files
    readable: tuple[str, ...] = ()  # additional paths that the administrator allows
    writable: tuple[str, ...] = ()
    log_limits: LogLimits = field(default_factory=LogLimits)
    oom_score: int = 500  # when memory runs out, the kernel ends a backend before the worker


class LocalProcesses:
    def __init__(
        self, settings: LocalSettings, *, groups: Groups | None, clock: Clock, ids: Ids, nvml: Nvml | None = None
    ) -> None:
        self._settings, self._groups, self._clock, self._ids, self._nvml = settings, groups, clock, ids, nvml
        self._records = Records(settings.state / "processes")
        self._boot_id = read_boot_id()
        self.logs = ProcessLogs(settings.state / "logs", settings.log_limits)
        self._reach = Reach(
            private=tuple(os.path.realpath(path) for path in (settings.state, *settings.private)),
            weights=tuple(os.path.realpath(path) for path in settings.weights),
            readable=settings.readable,
            writable=settings.writable,
            environment=settings.environment,
            passed_on=settings.pass_on,
        )

    async def launch(self, spec: ProcessSpec, *, port: int, restarts: int, crashes_s: Sequence[float]) -> LocalProcess:
        record = ProcessRecord(
            spec=spec,
            marker=self._ids.uuid().replace("-", ""),
            token=self._ids.token(),
            port=port,
            boot_id=self._boot_id,
            directory_id=read_directory_id(spec),
            reads_ids=read_file_ids(spec),
            launched_ms=self._clock.now_ms(),
            restarts=restarts,
            crashes_s=tuple(crashes_s),
        )
        try:
            return await asyncio.to_thread(self._launch, record)
        except OSError as problem:  # out of descriptors, processes, memory or disk: a retry may succeed
            raise Unavailable(
                f"this machine cannot start another process now: {problem}. Free resources on it and try again."
            ) from problem

    async def survivors(self) -> list[LocalProcess]:
        """Processes left by an earlier worker of this state directory, alive or ended. Kills those without a record."""
        return await asyncio.to_thread(self._survivors)

    async def sample(self, processes: Sequence[Process]) -> list[TreeUsage]:
        def read() -> list[TreeUsage]:
            gpu_memory = read_gpu_memory_by_pid(self._nvml) if self._nvml is not None else None
            return [process.read_usage(gpu_memory) for process in processes]

        return await asyncio.to_thread(read)

    def _launch(self, record: ProcessRecord) -> LocalProcess:
        directory = self._records.make(record.marker)
        group = self._make_group(record.marker)
        try:
            if group is not None:
                record = replace(record, group=str(group.directory))
            directory.write(record)
            shim_spec = self._encode_spec(record, directory, group)
            _start_shim(directory, record.marker, shim_spec, self._settings.environment)
        except BaseException:  # what was prepared for a process that does not start is removed
            self._abandon(directory, group)
            raise
        return self._handle(directory, record, directory.read_started(), group)

    def _abandon(self, directory: RecordDirectory, group: Group | None) -> None:
        """A shim that did not reply in time may still have started the backend."""
        try:
            self._end_strays(directory)
            directory.remove()
        except OSError as problem:  # the launch may have failed for the same cause; the next worker cleans up
            log.warning("process.cleanup_failed", directory=str(directory.path), error=str(problem))
            if group is not None:
                group.remove()

    def _make_group(self, marker: str) -> Group | None:
        if self._groups is None:
            return None
        try:
            return self._groups.make(marker)
        except OSError as problem:  # permissions can be revoked at run time; the tree is then found by other means
            log.warning("process.cgroup_not_created", error=str(problem))
            return None

    def _encode_spec(self, record: ProcessRecord, directory: RecordDirectory, group: Group | None) -> bytes:
        spec = record.spec
        home, tmp = directory.path / "home", directory.path / "tmp"
        for own in (home, tmp):
            own.mkdir(mode=0o700)
        environment = plan_environment(
            spec,
            self._settings.environment,
            port=record.port,
            token=record.token,
            marker=record.marker,
            home=str(home),
            also=self._settings.pass_on,
        )
        command = _command(record, environment["PATH"])
        if self._settings.isolation.setting != "off":
            ensure_uvm()
        confinement = plan_confinement(
            spec, record.port, self._settings.isolation, self._reach, program=command[0], home=home, tmp=tmp
        )
        if confinement.user is not None:
            for own in (home, tmp):
                os.chown(own, confinement.user.uid, confinement.user.gid)
        limits = self._settings.log_limits
        fields = {
            "run_dir": str(directory.path),
            "log_dir": str(self.logs.make(spec.key).directory),
            "directory": spec.directory or str(home),
            "groups": str(group.directory / "cgroup.procs") if group is not None else "",
            "oom_score": str(self._settings.oom_score),
            "rotate_bytes": str(limits.rotate_bytes),
            "rotate_count": str(limits.rotate_count),
        }
        pairs = [f"{name}={value}" for name, value in environment.items()]
        named = [fields[name] for name in shim_program.SPEC_FIELDS]
        steps = confinement.steps
        counted = (*named, str(len(command)), *command, str(len(steps)), *steps)
        return b"\0".join(os.fsencode(part) for part in (*counted, *pairs, shim_program.SPEC_END))

    def _handle(
        self, directory: RecordDirectory, record: ProcessRecord, started: StartRecord | None, group: Group | None
    ) -> LocalProcess:
        proven = False
        if group is not None and started is not None:
            with contextlib.suppress(OSError):  # the process may have failed to join; then the group proves nothing
                proven = started.main_pid in group.members()
        tree = ProcessTree(record.marker, started, group, group_is_proven=proven)
        return LocalProcess(record, directory, tree, self.logs.of(record.spec.key))

    def _survivors(self) -> list[LocalProcess]:
        found = []
        for directory in self._records.all():
            record = directory.read()
            if record is None:
                self._end_strays(directory)
                self._sweep(directory, reason="its record is missing or unreadable")
            elif record.boot_id != self._boot_id:
                self._sweep(directory, reason="it belongs to an earlier boot of this machine")
            elif (started := self._await_started(directory)) is None:
                # The client got no reply and will retry. If it was a restart, the crash has its own record.
                self._end_strays(directory)
                self._sweep(directory, reason="it was never started")
            else:
                group = open_group(Path(record.group)) if record.group is not None else None
                found.append(self._handle(directory, record, started, group))
        self.logs.sweep([process.record.spec.key for process in found])
        return found

    def _await_started(self, directory: RecordDirectory) -> StartRecord | None:
        """A shim may be starting: the previous worker was killed between starting it and reading its reply."""
        until_s = self._clock.monotonic_s() + _SHIM_WITHIN_S
        while self._clock.monotonic_s() < until_s:
            started = directory.read_started()
            if started is not None or not directory.has_shim():
                return started or directory.read_started()
            select.select([], [], [], 0.02)
        return None

    def _sweep(self, directory: RecordDirectory, *, reason: str) -> None:
        log.info("process.record_swept", marker=directory.path.name, reason=reason)
        directory.remove()

    def _end_strays(self, directory: RecordDirectory) -> None:
        """Kills processes without a record: they cannot be adopted, because what they serve is unknown."""
        marker = directory.path.name
        group = self._make_group(marker)
        tree = ProcessTree(marker, directory.read_started(), group)
        until_s = self._clock.monotonic_s() + _SHIM_WITHIN_S
        tree.kill_shim()
        while (strays := tree.kill()) and self._clock.monotonic_s() < until_s:
            log.warning("process.strays_killed", pids=strays, marker=marker)
            select.select([], [], [], 0.02)
        while group is not None and not group.remove() and self._clock.monotonic_s() < until_s:
            select.select([], [], [], 0.02)  # ended processes leave their group with a short delay


def _command(record: ProcessRecord, path: str) -> list[str]:
    spec = record.spec
    program, *arguments = (
        part.text(host=spec.host, port=record.port, token="") if isinstance(part, Fill) else part
        for part in spec.command
    )
    if "/" not in program:
        found = shutil.which(program, path=path)
        if found is None:
            raise InvalidInput(f"{spec.key}: program {program!r} not found in {path}. Install it or correct the path.")
        program = found
    return [program, *arguments]


def _start_shim(directory: RecordDirectory, marker: str, spec: bytes, environment: Mapping[str, str]) -> None:
    """Takes the lock here and lets the shim inherit it, so that a running shim is never seen without its lock."""
    # The interpreter may need its library path. The shim inherits nothing else from the worker's environment.
    passed = {name: environment[name] for name in ("LD_LIBRARY_PATH",) if name in environment}
    with contextlib.ExitStack() as worker_fds, contextlib.ExitStack() as shim_fds:
        lock = directory.take_lock()
        if lock is None:
            raise Unavailable(f"{directory.path} is in use by another shim. Try again.")
        shim_fds.callback(os.close, lock)
        spec_read, spec_write = _pipe(reader=shim_fds, writer=worker_fds)
        reply_read, reply_write = _pipe(reader=worker_fds, writer=shim_fds)
        errors = os.open(directory.path / "shim.err", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        shim_fds.callback(os.close, errors)
        pid = os.posix_spawn(
            _SHIM[0],
            _SHIM,
            {**passed, MARKER_VARIABLE: marker},
            # Only descriptors listed here are inherited. The last entry must not duplicate a descriptor onto itself.
            file_actions=[
                (os.POSIX_SPAWN_DUP2, spec_read, 0),
                (os.POSIX_SPAWN_DUP2, reply_write, 1),
                (os.POSIX_SPAWN_DUP2, errors, 2),
                (os.POSIX_SPAWN_DUP2, lock, 3 if lock != 3 else 4),
            ],
            setsid=True,
        )
        worker_fds.pop_all()
    if not _send_spec(spec_write, spec, reply_read):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        output = (directory.path / "shim.err").read_text(errors="replace").strip().splitlines()
        raise Unavailable(f"The shim of a process did not start: {output[-1] if output else 'it wrote no error'}.")


def _pipe(*, reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """Registers each end to be closed with the other descriptors of its owner."""
    read_fd, write_fd = os.pipe()
    reader.callback(os.close, read_fd)
    writer.callback(os.close, write_fd)
    return read_fd, write_fd


def _send_spec(spec_fd: int, spec: bytes, reply_fd: int) -> bytes:
    """Sends the spec and waits for the reply, "started" or "failed". Empty if none arrives in time."""
    with open(reply_fd, "rb") as reply:
        with contextlib.suppress(BrokenPipeError), open(spec_fd, "wb") as pipe:
            pipe.write(spec)
        readable, _, _ = select.select([reply], [], [], _SHIM_WITHIN_S)
        return reply.read() if readable else b""
