"""How far staging is, told among frontends in LocalAI's words (`staging.<model>.progress`)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from corral.bus.client import BusMessage
from corral.bus.messages import StagingProgress, StagingStatus, decode, encode
from corral.bus.subjects import staging_subject
from corral.controller.loads.ports import Link
from corral.controller.loads.progress import LoadTracker
from corral.core.errors import CorralError, InvalidInput
from corral.core.replicas.load_jobs import LoadProgress, LoadState
from corral.core.replicas.staging import Lot, is_news
from corral.core.sizes import format_bytes
from corral.system import Clock

log = structlog.get_logger()

LAST_WITHIN_S = 1.0
MIRROR_S = 60.0
MIRRORS_MOST = 1000


@asynccontextmanager
async def telling_of_staging(headway: LoadTracker, bus: Link, clock: Clock) -> AsyncIterator[None]:
    """Lossy, and never in the way of what it tells of; that it is over is told however it ended."""
    news = _News(headway, clock)
    headway.on_staged = news.take
    sending = asyncio.create_task(_send_all(news.queue, bus))
    try:
        yield
    finally:
        headway.on_staged = None
        news.queue.put_nowait(StagingProgress(model_id=headway.progress.model, done=True))
        try:
            async with asyncio.timeout(LAST_WITHIN_S):
                await sending
        except TimeoutError:
            log.info("staging.last_lost", model=headway.progress.model)


async def _send_all(queue: "asyncio.Queue[StagingProgress]", bus: Link) -> None:
    while True:
        message = await queue.get()
        try:
            await bus.publish(staging_subject(message.model_id), encode(message))
        except CorralError as error:
            log.debug("staging.not_told", model=message.model_id, error=str(error))
        if message.done:
            return


class _News:
    """What is worth telling, in the order in which it happened."""

    def __init__(self, headway: LoadTracker, clock: Clock) -> None:
        self._headway, self._clock = headway, clock
        self._began_s, self._began_at = clock.monotonic_s(), _rfc3339(clock.now_ms())
        self._told: Lot | None = None
        self._told_s = 0.0
        self.queue: asyncio.Queue[StagingProgress] = asyncio.Queue()

    def take(self, lot: Lot) -> None:
        now_s = self._clock.monotonic_s()
        if not is_news(self._told, lot, since_s=now_s - self._told_s):
            return
        self._told, self._told_s = lot, now_s
        model = self._headway.progress.model
        self.queue.put_nowait(StagingProgress(model_id=model, done=False, status=self._status(lot, now_s)))

    def _status(self, lot: Lot, now_s: float) -> StagingStatus:
        progress = self._headway.progress
        elapsed_s = now_s - self._began_s
        speed = f"{_size(lot.bytes_there / elapsed_s)}/s" if lot.bytes_there and elapsed_s > 0 else ""
        moved = f"{_size(lot.bytes_there)} / {_size(lot.bytes_total)}"
        return StagingStatus(
            model_id=progress.model,
            node_name=progress.node,
            file_name=lot.file_name,
            bytes_sent=lot.bytes_there,
            total_bytes=lot.bytes_total,
            progress=int(progress.percent),
            speed=speed,
            file_index=lot.file_index,
            total_files=lot.files,
            message=f"{lot.file_name} ({', '.join(filter(None, (moved, speed)))})".lstrip(),
            started_at=self._began_at,
        )


def _size(count: float) -> str:
    """LocalAI writes GB and means GiB."""
    return format_bytes(count).replace("iB", "B")


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class _Mirror:
    progress: LoadProgress
    heard_s: float


class StagingMirrors:
    """What others say of loads that are not ours; forgotten unless repeated."""

    def __init__(self, clock: Clock, *, is_ours: Callable[[str], bool]) -> None:
        self._clock, self._is_ours = clock, is_ours
        self._mirrors: dict[str, _Mirror] = {}

    async def hear(self, message: BusMessage) -> None:
        news = decode(message.data, StagingProgress)
        if message.subject != staging_subject(news.model_id):
            raise InvalidInput(f"staging of {news.model_id[:200]!r} came on {message.subject}")
        self._mirrors.pop(news.model_id, None)
        if news.done or news.status is None or self._is_ours(news.model_id):
            return
        if len(self._mirrors) >= MIRRORS_MOST:
            del self._mirrors[next(iter(self._mirrors))]  # the one heard of longest ago
        self._mirrors[news.model_id] = _Mirror(_progress(news.status), self._clock.monotonic_s())

    def find(self, model: str) -> LoadProgress | None:
        mirror = self._mirrors.get(model)
        if mirror is None or self._clock.monotonic_s() - mirror.heard_s > MIRROR_S:
            self._mirrors.pop(model, None)
            return None
        return mirror.progress


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
