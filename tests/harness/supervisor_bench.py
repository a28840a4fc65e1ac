"""Real children under a real supervisor."""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corral.core.processes.ports import PortPool
from corral.core.processes.process import Fill, ProcessKey, ProcessReadiness, ProcessSpec, ProcessView
from corral.core.processes.restarts import RestartPolicy
from corral.system import SystemClock, SystemIds
from corral.worker.processes.cgroups import Groups, GroupsV1, GroupsV2, find_groups
from corral.worker.processes.isolation import IsolationSetting, find_isolation
from corral.worker.processes.local import LocalProcesses, LocalSettings
from corral.worker.processes.logs import LogLimits
from corral.worker.processes.ports import Ports
from corral.worker.processes.supervisor import Supervisor
from corral.worker.processes.tree import find_marked
from harness.ports import take_ports

SERVER = Path(__file__).with_name("serving_child.py")
READY = ProcessReadiness(kind="http", path="/health", refuses_wrong_token=True, within_s=20, quiet_within_s=10)


def server(key: str = "model#0", *arguments: str, **changes: Any) -> ProcessSpec:
    """A small HTTP server that wants its token; arguments make it misbehave."""
    spec = ProcessSpec(
        key=ProcessKey(key),
        backend="test",
        version_digest="sha256:1",
        command=(sys.executable, "-I", "-S", str(SERVER), Fill("{port}"), *arguments),
        environment={"TOKEN": Fill("{token}")},
        readiness=READY,
    )
    return replace(spec, **changes)


def script(key: str, text: str, **changes: Any) -> ProcessSpec:
    return server(key, command=("sh", "-c", text), **changes)


@dataclass
class Bench:
    state: Path
    groups: Groups | None
    first_port: int = field(default_factory=lambda: take_ports(40))
    port_count: int = 40
    quarantine_s: float = 15.0
    policy: RestartPolicy = field(default_factory=lambda: RestartPolicy(base_s=0.02, cap_s=0.1, budget=3))
    log_limits: LogLimits = field(default_factory=LogLimits)
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})
    changes: list[ProcessView] = field(default_factory=list)
    grace_s: float = 1.0
    stop_within_s: float = 20.0
    retry_stop_after_s: float = 5.0
    ports: Ports | None = None
    isolation: IsolationSetting = "auto"

    def processes(self) -> LocalProcesses:
        settings = LocalSettings(
            state=self.state,
            environment=self.environment,
            isolation=find_isolation(self.isolation, self.state),
            private=(self.state,),
            readable=(str(SERVER.parent),),
            log_limits=self.log_limits,
        )
        return LocalProcesses(settings, groups=self.groups, clock=SystemClock(), ids=SystemIds())

    @contextlib.asynccontextmanager
    async def supervisor(self, *, stop: bool = True) -> AsyncIterator[Supervisor]:
        """Without `stop` the processes are left to the next supervisor, as by a worker that is replaced."""
        pool = PortPool(range(self.first_port, self.first_port + self.port_count), quarantine_s=self.quarantine_s)
        self.ports = Ports(pool, SystemClock())
        async with asyncio.TaskGroup() as tasks:
            supervisor = Supervisor(
                tasks,
                self.processes(),
                self.ports,
                clock=SystemClock(),
                ids=SystemIds(),
                changed=self.changes.append,
                policy=self.policy,
                grace_s=self.grace_s,
                stop_within_s=self.stop_within_s,
                retry_stop_after_s=self.retry_stop_after_s,
            )
            try:
                yield supervisor
            finally:
                if stop:
                    await supervisor.stop_all(reason="the test is over")
                for task in lives(tasks):
                    task.cancel()

    def markers(self) -> list[str]:
        root = self.state / "processes"
        return [path.name for path in root.iterdir()] if root.is_dir() else []

    def left_over(self) -> list[int]:
        return [pid for marker in self.markers() for pid in find_marked(marker)]


def lives(tasks: asyncio.TaskGroup) -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("process ")]


GROUPS: dict[str, Callable[[], Groups | None]] = {
    "v2": lambda: _kind(GroupsV2),
    "v1": lambda: _v1(),
    "none": lambda: None,
}


def _kind(kind: type) -> Groups | None:
    found = find_groups()
    return found if isinstance(found, kind) else None


def _v1() -> Groups | None:
    parent = Path("/sys/fs/cgroup/freezer")
    return GroupsV1(parent) if os.access(parent, os.W_OK) and (parent / "cgroup.procs").exists() else None


async def until(is_so: Callable[[], object], *, within_s: float = 40.0) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110  what we wait for is in another process
            await asyncio.sleep(0.01)


def open_to_all(path: Path) -> None:
    """pytest's directories are closed to other users; a process that runs as one must get to its own."""
    for directory in (path, *path.parents):
        if directory == Path(tempfile.gettempdir()):
            return
        directory.chmod(0o755)
