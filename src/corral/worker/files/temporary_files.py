"""Removes temporary files whose owners were killed before they could."""

import asyncio
import re

import structlog

from corral.system import Clock
from corral.worker.files.areas import Area
from corral.worker.files.object_storage import PART_MARK, TEMPORARY

EPHEMERAL = "ephemeral"
"""The directory of files that belong to one request: its inputs and outputs."""
OUTPUT_PREFIX = "localai-output-"

log = structlog.get_logger()

UNTOUCHED_S = 2 * 3600.0
"""Backends outlive workers: a recently modified file may still be in use."""
SWEEP_EVERY_S = 600.0
_UNIQUE = r"[0-9a-f-]{32,36}"
_IN_INBOX = re.compile(rf"{EPHEMERAL}/.+|{re.escape(OUTPUT_PREFIX)}{_UNIQUE}\.tmp")
_IN_CACHE = re.compile(rf"{TEMPORARY}/.+|.+{re.escape(PART_MARK)}{_UNIQUE}")


async def sweep_temporaries(inbox: Area, cache: Area, *, clock: Clock) -> None:
    """Runs without end. Requesters delete their files, except killed frontends and workers, and LocalAI frontends."""
    while True:
        before_s = clock.now_ms() / 1000 - UNTOUCHED_S
        for area, ours in ((inbox, _IN_INBOX), (cache, _IN_CACHE)):
            removed = await asyncio.to_thread(area.remove_older, ours, before_s=before_s)
            if removed:
                log.info("files.temporaries_removed", directory=area.root.name, files=removed)
        await asyncio.sleep(SWEEP_EVERY_S)
