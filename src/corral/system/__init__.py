"""Adapters to the machine we run on. Together with the store's and the bus's drivers these are the only modules
that touch clock, randomness, disk, sockets, threads and processes; everything else is handed one of them."""

from corral.system.clock import Clock, SystemClock
from corral.system.disk import Disk, SystemDisk
from corral.system.ids import Ids, SystemIds

__all__ = ["Clock", "Disk", "Ids", "SystemClock", "SystemDisk", "SystemIds"]
