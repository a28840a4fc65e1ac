"""Backends and processes of a node, as the node last reported them: complete, never inferred."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from corral.core.nodes.engine_capacity import EngineCapacity
from corral.core.nodes.node import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBackend:
    name: str
    is_meta: bool = False
    is_system: bool = False
    concrete: str = ""
    """For a meta backend: the backend that it resolves to on this node."""
    alias: str = ""
    version: str = ""
    digest: str = ""
    uri: str = ""
    gallery_url: str = ""
    installed_at: str = ""
    generation: int | None = None
    """Of the last intent that was applied; None from a worker without generations."""
    versions: tuple[str, ...] = ()
    """Digests on the node's disk, newest first."""
    problem: str = ""


class ProcessStatus(StrEnum):
    """The state of a process as a worker reports it."""

    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """A state that a newer worker reports and this version does not know."""

    @classmethod
    def _missing_(cls, value: object) -> "ProcessStatus":
        return cls.UNKNOWN


RUNNING_STATUSES = frozenset({ProcessStatus.STARTING, ProcessStatus.READY, ProcessStatus.BACKING_OFF})
"""The process runs or will be restarted by its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProcess:
    process_key: str
    model: str
    replica: int
    backend: str
    digest: str
    """The build it was started from; empty from a worker that does not report it."""
    state: ProcessStatus
    protocol: str = ""
    pid: int | None = None
    engine: EngineCapacity | None = None
    """How many requests its engine takes; None from a worker that does not know."""
    restarts: int = 0
    """How often its worker started it again because it had ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """The newest complete list of a node's processes."""

    epoch: int
    processes: tuple[ObservedProcess, ...]
    seen_at: int | None = None
    """When it was last confirmed: to about fifteen seconds, or exactly for a LocalAI worker."""

    def find(self, process_key: str) -> ObservedProcess | None:
        return next((process for process in self.processes if process.process_key == process_key), None)


LOCALAI_INSTANCE = "localai"
"""The instance of a LocalAI worker, which does not report one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    node_id: NodeId
    instance: str
    epoch: int
    sequence: int
    backends: tuple[ObservedBackend, ...]
    processes: tuple[ObservedProcess, ...]

    @property
    def order(self) -> tuple[int, int]:
        """A later observation replaces an earlier one completely."""
        return self.epoch, self.sequence

    @property
    def is_polled(self) -> bool:
        """Whether the worker reports nothing unasked, so that the time of the report matters."""
        return self.instance == LOCALAI_INSTANCE


def find_backend(backends: Iterable[ObservedBackend], *names: str) -> ObservedBackend | None:
    return find_named({backend.name: backend for backend in backends}, *names)


def find_named(by_name: Mapping[str, ObservedBackend], *names: str) -> ObservedBackend | None:
    """The installed build for any of these names: a directory, a meta backend, or an alias, in this order."""
    given = [name for name in names if name]
    for name in given:
        found = by_name.get(name)
        if found is not None:
            return by_name.get(found.concrete, found) if found.concrete else found
    for name in given:
        for backend in by_name.values():
            if backend.alias == name:
                return backend
    return None


def find_moved(backends: Iterable[ObservedBackend], family: str, build: str) -> str | None:
    """The installed build that the family points to, if it is not this one."""
    by_name = {backend.name: backend for backend in backends}
    pointer = by_name.get(family)
    if pointer is None or pointer.concrete in ("", build) or pointer.concrete not in by_name:
        return None
    return pointer.concrete


def families_of(backends: Iterable[ObservedBackend], build: str) -> frozenset[str]:
    """The meta backends that point to the build."""
    return frozenset(one.name for one in backends if one.concrete == build and one.name != build)


def family_of(backends: Iterable[ObservedBackend], name: str) -> str:
    """The meta backend that a build was installed for, or its own name."""
    for backend in backends:
        if backend.concrete == name and backend.name != name:
            return backend.name
    return name
