"""The required calls of NVIDIA's management library. A missing library is normal; a failure is reported as text."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

NvmlProblem = Literal["absent", "not_supported", "failed"]


class NvmlError(Exception):
    def __init__(self, kind: NvmlProblem, text: str) -> None:
        super().__init__(text)
        self.kind: NvmlProblem = kind


@dataclass(frozen=True, slots=True)
class GpuMemory:
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class GpuProcess:
    pid: int
    memory_bytes: int | None  # not reported in some virtual machines


class Nvml(Protocol):
    """Every method may raise NvmlError; `open` may be called again after a failure or a `close`."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def driver_version(self) -> str: ...
    def device_count(self) -> int: ...
    def name(self, index: int) -> str: ...
    def memory(self, index: int) -> GpuMemory: ...
    def compute_capability(self, index: int) -> str: ...
    def pci_address(self, index: int) -> str: ...
    def uuid(self, index: int) -> str: ...
    def processes(self, index: int) -> list[GpuProcess]: ...


class NvidiaMl:
    """The real library, loaded on first use, because most machines have no NVIDIA driver."""

    def __init__(self) -> None:
        self._library: Any = None

    def open(self) -> None:
        """Initialises the library only once: it can take a second, which is too long for a heartbeat."""
        if self._library is not None:
            return
        library = importlib.import_module("pynvml")
        try:
            library.nvmlInit()
        except library.NVMLError as problem:
            absent = (library.NVML_ERROR_LIBRARY_NOT_FOUND, library.NVML_ERROR_DRIVER_NOT_LOADED)
            raise NvmlError("absent" if problem.value in absent else "failed", str(problem)) from problem
        self._library = library

    def close(self) -> None:
        library, self._library = self._library, None
        if library is not None:
            with _translate_errors(library):
                library.nvmlShutdown()

    def driver_version(self) -> str:
        return str(self._ask(lambda library: library.nvmlSystemGetDriverVersion()))

    def device_count(self) -> int:
        return int(self._ask(lambda library: library.nvmlDeviceGetCount()))

    def name(self, index: int) -> str:
        return str(self._ask(lambda library: library.nvmlDeviceGetName(_device(library, index))))

    def memory(self, index: int) -> GpuMemory:
        memory = self._ask(lambda library: library.nvmlDeviceGetMemoryInfo(_device(library, index)))
        return GpuMemory(int(memory.total), int(memory.free))

    def compute_capability(self, index: int) -> str:
        major, minor = self._ask(lambda library: library.nvmlDeviceGetCudaComputeCapability(_device(library, index)))
        return f"{major}.{minor}"

    def pci_address(self, index: int) -> str:
        return str(self._ask(lambda library: library.nvmlDeviceGetPciInfo(_device(library, index)).busId))

    def uuid(self, index: int) -> str:
        return str(self._ask(lambda library: library.nvmlDeviceGetUUID(_device(library, index))))

    def processes(self, index: int) -> list[GpuProcess]:
        found = self._ask(lambda library: library.nvmlDeviceGetComputeRunningProcesses(_device(library, index)))
        return [GpuProcess(int(process.pid), process.usedGpuMemory) for process in found]

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        if self._library is None:
            raise NvmlError("failed", "the NVIDIA management library is not open")
        with _translate_errors(self._library):
            return question(self._library)


def _device(library: Any, index: int) -> Any:
    return library.nvmlDeviceGetHandleByIndex(index)


@contextmanager
def _translate_errors(library: Any) -> Iterator[None]:
    try:
        yield
    except library.NVMLError as problem:
        unsupported = problem.value == library.NVML_ERROR_NOT_SUPPORTED
        raise NvmlError("not_supported" if unsupported else "failed", str(problem)) from problem
