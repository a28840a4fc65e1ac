"""NVIDIA's library, as a script. The only fake of the hardware tests: no machine of ours has the real one."""

from dataclasses import dataclass, field
from typing import Any

from corral.worker.hardware.nvml import GpuMemory, GpuProcess, NvmlError


@dataclass
class ScriptedNvml:
    """What the real library would say. A missing answer is the error it gives for it."""

    devices: list[dict[str, Any]] = field(default_factory=list)
    open_problem: NvmlError | None = None
    opened: int = 0
    closed: int = 0

    def open(self) -> None:
        if self.open_problem:
            raise self.open_problem
        self.opened += 1

    def close(self) -> None:
        self.closed += 1

    def driver_version(self) -> str:
        return "575.57.08"

    def device_count(self) -> int:
        return len(self.devices)

    def name(self, index: int) -> str:
        return str(self._tell(index, "name"))

    def memory(self, index: int) -> GpuMemory:
        memory = self._tell(index, "memory")
        assert isinstance(memory, GpuMemory)
        return memory

    def compute_capability(self, index: int) -> str:
        return str(self._tell(index, "compute_capability"))

    def pci_address(self, index: int) -> str:
        return str(self._tell(index, "pci_address"))

    def uuid(self, index: int) -> str:
        return str(self._tell(index, "uuid"))

    def processes(self, index: int) -> list[GpuProcess]:
        return []

    def _tell(self, index: int, what: str) -> object:
        answer = self.devices[index].get(what, NvmlError("not_supported", "Not Supported"))
        if isinstance(answer, NvmlError):
            raise answer
        return answer
