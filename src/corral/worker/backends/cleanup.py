"""Gives the disk back: versions nobody goes back to, and what belonged to backends and models that were deleted."""

import asyncio
from pathlib import Path

import structlog

from corral.system.loops import wait_or_timeout
from corral.worker.backends.backends import Backends
from corral.worker.ports import Fetch
from corral.worker.processes.supervisor import Supervisor

log = structlog.get_logger()

EVERY_S = 3600.0
SPARE_S = 86400.0
"""What an install that failed or was cancelled has brought is kept so long, for its next try."""


async def tidy_always(artifacts: Fetch, backends: Backends, supervisor: Supervisor, due: asyncio.Event) -> None:
    """When `due` is set, which a new version and a delete do, and now and then: a version may have been in use."""
    while True:
        await wait_or_timeout(due, within_s=EVERY_S)
        await tidy(artifacts, backends, supervisor)


async def tidy(artifacts: Fetch, backends: Backends, supervisor: Supervisor) -> None:
    # Also of those that wait to be started again: no process of theirs would be found.
    in_use = [Path(view.spec.directory) for view in supervisor.list() if view.spec.directory is not None]
    freed = await artifacts.collect_garbage(in_use=in_use, spare_s=SPARE_S)
    await artifacts.sweep_partials()
    if freed.versions:
        await backends.refresh()
    if freed.versions or freed.layers or freed.blobs:
        log.info("worker.tidied", versions=freed.versions, layers=freed.layers, blobs=freed.blobs, bytes=freed.bytes)
