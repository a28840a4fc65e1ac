"""Detects the hardware of this machine."""

from corral.worker.hardware.nvml import NvidiaMl, Nvml, NvmlError
from corral.worker.hardware.reader import Roots, read_capability_facts, read_hardware, read_usage

__all__ = ["NvidiaMl", "Nvml", "NvmlError", "Roots", "read_capability_facts", "read_hardware", "read_usage"]
