"""`corral up` after everything is ready: the supervisor, in a program that imports nothing else (ADR 0856)."""

import argparse
import asyncio
import os
import signal
from pathlib import Path

from corral.roles.up.supervisor import STOP_SIGNALS, UpSupervisor, read_components
from corral.system import SystemClock, SystemDisk, SystemIds
from corral.system.children import spawn_child
from corral.system.run import run_until_signal


async def _supervise(data: Path, components: int, lock: int) -> None:
    os.set_inheritable(lock, False)
    supervisor = UpSupervisor(
        read_components(components),
        data,
        spawn=spawn_child,
        clock=SystemClock(),
        ids=SystemIds(),
        disk=SystemDisk(),
    )
    work = asyncio.ensure_future(supervisor.run())
    await asyncio.sleep(0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # blocked by the program before, until someone hears them
    await work


def main() -> None:
    parser = argparse.ArgumentParser(prog="corral up")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--components", type=int, required=True, help="the descriptor to read them from")
    parser.add_argument("--lock", type=int, required=True, help="the descriptor of the data directory's lock")
    given = parser.parse_args()
    run_until_signal(lambda: _supervise(given.data_dir, given.components, given.lock), fast=False)


main()
