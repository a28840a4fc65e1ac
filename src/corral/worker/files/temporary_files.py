"""Files that are of use for a moment only, and stay behind when whoever made them is killed."""

import asyncio
import re

import structlog

from corral.system import Clock
from corral.worker.files.areas import Area
from corral.worker.files.object_storage import PART_MARK, TEMPORARY

EPHEMERAL = "ephemeral"
"""Files that belong to one request: what it brought, what came of it."""
OUTPUT_PREFIX = "localai-output-"

log = structlog.get_logger()

UNTOUCHED_S = 2 * 3600.0
"""Backends outlive workers and write on: what was written to lately may still be wanted."""
SWEEP_EVERY_S = 600.0
_UNIQUE = r"[0-9a-f-]{32,36}"
_IN_INBOX = re.compile(rf"{EPHEMERAL}/.+|{re.escape(OUTPUT_PREFIX)}{_UNIQUE}\.tmp")
_IN_CACHE = re.compile(rf"{TEMPORARY}/.+|.+{re.escape(PART_MARK)}{_UNIQUE}")


async def sweep_temporaries(inbox: Area, cache: Area, *, clock: Clock) -> None:
    """Who asked deletes; a frontend or worker that died in between, and frontends of LocalAI, do not."""
    while True:
        before_s = clock.now_ms() / 1000 - UNTOUCHED_S
        for area, ours in ((inbox, _IN_INBOX), (cache, _IN_CACHE)):
            removed = await asyncio.to_thread(area.remove_older, ours, before_s=before_s)
            if removed:
                log.info("files.temporaries_removed", directory=area.root.name, files=removed)
        await asyncio.sleep(SWEEP_EVERY_S)
