"""Describes the machine in registrations and heartbeats."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corral import __version__
from corral.bus.node_api import LONG_TEXT_MOST, GpuFacts, HeartbeatExtras, HeartbeatRequest, NodeCondition, NodeFacts
from corral.core.errors import Unavailable
from corral.core.nodes.capability import Capability, pick_capability
from corral.core.nodes.conditions import Condition
from corral.core.nodes.hardware import Hardware
from corral.settings.roles import WorkerSettings
from corral.worker.hardware import Roots, read_capability_facts, read_hardware, read_usage
from corral.worker.ports import WorkerPorts
from corral.worker.processes.isolation import Isolation
from corral.worker.processes.uvm import ensure_uvm


@dataclass(frozen=True, slots=True)
class Machine:
    roots: Roots
    hardware: Hardware
    capability: Capability
    isolation: Isolation

    def facts(self) -> NodeFacts:
        return NodeFacts(
            version=__version__,
            platform=self.hardware.platform,
            cpu_model=self.hardware.cpu.model,
            cpu_count=self.hardware.cpu.count,
            cpu_flags=list(self.hardware.cpu.flags) if self.hardware.cpu.flags is not None else None,
            gpus=[
                GpuFacts(
                    vendor=gpu.vendor,
                    name=gpu.name,
                    memory_total_bytes=gpu.memory_total_bytes,
                    memory_free_bytes=gpu.memory_free_bytes,
                    unified=gpu.unified,
                    driver=gpu.driver,
                    compute_capability=gpu.compute_capability,
                )
                for gpu in self.hardware.gpus
            ],
            capability_reason=self.capability.reason,
            isolation=self.isolation.level,
            isolation_reason=self.isolation.describe(),
            problems=[problem[:1000] for problem in self.hardware.problems[:64]],
        )

    async def read_again(self) -> "Machine":
        """Updates the free memory and disk space. The hardware and its capability are read only once."""
        now = await asyncio.to_thread(read_hardware, self.roots)
        same_gpus = [gpu.name for gpu in now.gpus] == [gpu.name for gpu in self.hardware.gpus]
        gpus = now.gpus if same_gpus else self.hardware.gpus
        return replace(self, hardware=replace(self.hardware, gpus=gpus, memory=now.memory, disk=now.disk))

    async def read_heartbeat(self, instance: str, conditions: Sequence[Condition], sent_at_ms: int) -> HeartbeatRequest:
        usage = await asyncio.to_thread(read_usage, self.roots, self.hardware)
        return HeartbeatRequest(
            available_vram=usage.vram_free_bytes,
            total_vram=usage.vram_total_bytes,
            available_ram=usage.ram_available_bytes,
            available_disk=usage.disk_available_bytes,
            total_disk=usage.disk_total_bytes,
            gpu_vendor=self.hardware.gpu_vendor,
            corral=HeartbeatExtras(
                instance=instance,
                sent_at_ms=sent_at_ms,
                conditions=[
                    NodeCondition(one.kind, one.reason[:LONG_TEXT_MOST], one.remedy[:LONG_TEXT_MOST])
                    for one in conditions
                ],
            ),
        )


async def read_machine(settings: WorkerSettings, ports: WorkerPorts) -> Machine:
    models = settings.data_dir / "models"
    try:
        ports.disk.make_directory(models, private=False)
    except OSError as error:
        raise Unavailable(f"cannot create {models}: {error.strerror}. Choose another --data-dir.") from error
    roots = ports.hardware(models)
    hardware = await asyncio.to_thread(read_hardware, roots)
    environment = dict(ports.environment)
    if settings.capability:
        environment["LOCALAI_FORCE_META_BACKEND_CAPABILITY"] = settings.capability
    facts = await asyncio.to_thread(read_capability_facts, roots, hardware, environment)
    isolation = await asyncio.to_thread(ports.find_isolation, settings.backend_isolation, settings.data_dir)
    if isolation.level != "none" and (problem := await asyncio.to_thread(ensure_uvm, roots.root, roots.tool_path)):
        hardware = replace(hardware, problems=(*hardware.problems, problem))
    return Machine(roots, hardware, pick_capability(facts), isolation)
