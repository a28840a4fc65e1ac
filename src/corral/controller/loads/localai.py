"""Staging progress between frontends in LocalAI's format (`staging.<model>.progress`)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from corral.bus.client import BusMessage
from corral.bus.messages import StagingProgress, StagingStatus, decode, encode
from corral.bus.subjects import staging_subject
from corral.controller.loads.ports import NodeBus
from corral.controller.loads.tracker import LoadTracker
from corral.core.errors import CorralError, InvalidInput
from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.core.replicas.staging import FileTransfer, should_publish
from corral.core.sizes import format_bytes
from corral.system import Clock

log = structlog.get_logger()

LAST_WITHIN_S = 1.0
EXPIRES_S = 60.0
MAX_ENTRIES = 1000


@asynccontextmanager
async def publishing_staging(tracker: LoadTracker, bus: NodeBus, clock: Clock) -> AsyncIterator[None]:
    """Publishes progress while the block runs, without ever delaying it, and at the end that staging is done."""
    publisher = _Publisher(tracker, clock)
    tracker.on_staged = publisher.take
    sending = asyncio.create_task(_send_all(publisher.queue, bus))
    try:
        yield
    finally:
        tracker.on_staged = None
        publisher.queue.put_nowait(StagingProgress(model_id=tracker.progress.model, done=True))
        try:
            async with asyncio.timeout(LAST_WITHIN_S):
                await sending
        except TimeoutError:
            log.info("staging.end_not_published", model=tracker.progress.model)


async def _send_all(queue: "asyncio.Queue[StagingProgress]", bus: NodeBus) -> None:
    while True:
        message = await queue.get()
        try:
            await bus.publish(staging_subject(message.model_id), encode(message))
        except CorralError as error:
            log.debug("staging.not_published", model=message.model_id, error=str(error))
        if message.done:
            return


class _Publisher:
    """Queues what is to be published, in order."""

    def __init__(self, tracker: LoadTracker, clock: Clock) -> None:
        self._tracker, self._clock = tracker, clock
        self._began_s, self._began_at = clock.monotonic_s(), _rfc3339(clock.now_ms())
        self._published: FileTransfer | None = None
        self._published_s = 0.0
        self.queue: asyncio.Queue[StagingProgress] = asyncio.Queue()

    def take(self, transfer: FileTransfer) -> None:
        now_s = self._clock.monotonic_s()
        if not should_publish(self._published, transfer, since_s=now_s - self._published_s):
            return
        self._published, self._published_s = transfer, now_s
        model = self._tracker.progress.model
        self.queue.put_nowait(StagingProgress(model_id=model, done=False, status=self._status(transfer, now_s)))

    def _status(self, transfer: FileTransfer, now_s: float) -> StagingStatus:
        progress = self._tracker.progress
        elapsed_s = now_s - self._began_s
        speed = f"{_size(transfer.bytes_done / elapsed_s)}/s" if transfer.bytes_done and elapsed_s > 0 else ""
        moved = f"{_size(transfer.bytes_done)} / {_size(transfer.bytes_total)}"
        return StagingStatus(
            model_id=progress.model,
            node_name=progress.node,
            file_name=transfer.file_name,
            bytes_sent=transfer.bytes_done,
            total_bytes=transfer.bytes_total,
            progress=int(progress.percent),
            speed=speed,
            file_index=transfer.file_index,
            total_files=transfer.files,
            message=f"{transfer.file_name} ({', '.join(filter(None, (moved, speed)))})".lstrip(),
            started_at=self._began_at,
        )


def _size(count: float) -> str:
    """LocalAI writes GB for GiB."""
    return format_bytes(count).replace("iB", "B")


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class _Entry:
    progress: LoadProgress
    heard_s: float


class RemoteStaging:
    """Staging that other frontends publish for loads that are not ours. An entry expires unless it is repeated."""

    def __init__(self, clock: Clock, *, is_ours: Callable[[str], bool]) -> None:
        self._clock, self._is_ours = clock, is_ours
        self._entries: dict[str, _Entry] = {}

    async def on_staging(self, message: BusMessage) -> None:
        published = decode(message.data, StagingProgress)
        if message.subject != staging_subject(published.model_id):
            raise InvalidInput(
                f"staging progress of {published.model_id[:200]!r} arrived on a wrong subject: {message.subject}"
            )
        self._entries.pop(published.model_id, None)
        if published.done or published.status is None or self._is_ours(published.model_id):
            return
        if len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]  # the oldest
        self._entries[published.model_id] = _Entry(_progress(published.status), self._clock.monotonic_s())

    def find(self, model: str) -> LoadProgress | None:
        entry = self._entries.get(model)
        if entry is None or self._clock.monotonic_s() - entry.heard_s > EXPIRES_S:
            self._entries.pop(model, None)
            return None
        return entry.progress


def _progress(status: StagingStatus) -> LoadProgress:
    return LoadProgress(
        model=status.model_id,
        state=LoadState.STAGING,
        node=status.node_name,
        bytes_sent=status.bytes_sent,
        total_bytes=status.total_bytes,
        file_index=status.file_index,
        total_files=status.total_files,
    )
