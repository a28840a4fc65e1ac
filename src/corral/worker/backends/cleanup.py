"""Frees disk space: removes superseded versions and the data of deleted backends and models."""

import asyncio
from pathlib import Path

import structlog

from corral.system.loops import wait_or_timeout
from corral.worker.backends.backends import Backends
from corral.worker.ports import Fetch
from corral.worker.processes.supervisor import Supervisor

log = structlog.get_logger()

EVERY_S = 3600.0
KEEP_PARTIAL_S = 86400.0
"""How long downloads of failed and cancelled installs are kept for a retry."""


async def run_cleanup(artifacts: Fetch, backends: Backends, supervisor: Supervisor, due: asyncio.Event) -> None:
    """Cleans up when `due` is set, after a new version or a delete, and periodically for versions that were in use."""
    while True:
        await wait_or_timeout(due, within_s=EVERY_S)
        await clean_up(artifacts, backends, supervisor)


async def clean_up(artifacts: Fetch, backends: Backends, supervisor: Supervisor) -> None:
    # Includes processes that wait for a restart, which have no running process.
    in_use = [Path(view.spec.directory) for view in supervisor.list() if view.spec.directory is not None]
    freed = await artifacts.collect_garbage(in_use=in_use, spare_s=KEEP_PARTIAL_S)
    await artifacts.sweep_partials()
    if freed.versions:
        await backends.refresh()
    if freed.versions or freed.layers or freed.blobs:
        log.info(
            "worker.cleaned_up", versions=freed.versions, layers=freed.layers, blobs=freed.blobs, bytes=freed.bytes
        )
