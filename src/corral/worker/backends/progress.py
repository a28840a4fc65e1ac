"""Publishes the progress of installs: at most four times a second, with a final message, without delaying the job."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import structlog

from corral.artifacts.progress import Phase, later_phase
from corral.bus.messages import InstallProgress, ProgressExtras, encode
from corral.bus.subjects import progress_subject
from corral.core.errors import CorralError
from corral.core.transfer import TransferProgress

log = structlog.get_logger()

EVERY_S = 0.25
LAST_WITHIN_S = 1.0
_NOTHING_YET = TransferProgress(phase=Phase.RESOLVING.label, bytes_done=0, rate_bytes_per_s=0.0)
# LocalAI knows four phases; Corral's finer ones are sent in a separate field.
_LOCALAI_PHASES = {
    "resolving": "resolving",
    "downloading": "downloading",
    "verifying": "downloading",
    "extracting": "extracting",
    "ready": "extracting",
    "starting": "starting",
}

Publish = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ProgressTopic:
    node: str
    backend: str
    op_id: str


class ProgressFeed:
    """`show` stores the newest progress; the task of `publish_progress` sends it periodically."""

    def __init__(self, topic: ProgressTopic, publish: Publish) -> None:
        self._topic, self._publish = topic, publish
        self._newest = _NOTHING_YET
        self._starting = False
        self._sequence = 0
        self._news = asyncio.Event()

    def show(self, progress: TransferProgress) -> None:
        # A retried download may restart at zero; the shown progress does not decrease.
        percentage = max(progress.percentage, self._newest.percentage)
        phase = later_phase(progress.phase, self._newest.phase)
        self._newest = replace(progress, percentage=percentage, phase=phase)
        self._news.set()

    def show_starting(self) -> None:
        self._starting = True
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self.send()
            await asyncio.sleep(EVERY_S)

    async def send(self, *, last: bool = False, error: str = "") -> None:
        self._sequence += 1
        phase = "starting" if self._starting and not last else self._newest.phase
        transfer = replace(
            self._newest,
            phase=("failed" if error else "ready") if last else phase,
            percentage=100.0 if last and not error else self._newest.percentage,
        )
        message = InstallProgress(
            op_id=self._topic.op_id,
            node_id=self._topic.node,
            backend=self._topic.backend,
            percentage=transfer.percentage,
            file_name=transfer.file_name,
            current=human_size(transfer.bytes_done or 0),
            total=human_size(transfer.bytes_total) if transfer.bytes_total is not None else "",
            phase=_LOCALAI_PHASES[phase],
            corral=ProgressExtras(sequence=self._sequence, transfer=transfer, last=last, error=error),
        )
        try:
            await self._publish(progress_subject(self._topic.node, self._topic.op_id), encode(message))
        except CorralError as problem:  # progress may be lost; the reply is authoritative
            log.debug("progress.lost", op=self._topic.op_id, error=str(problem))


@asynccontextmanager
async def publish_progress(topic: ProgressTopic, publish: Publish) -> AsyncIterator[ProgressFeed | None]:
    """Yields None without an operation id: no progress is then published."""
    if not topic.op_id:
        yield None
        return
    feed = ProgressFeed(topic, publish)
    sending = asyncio.ensure_future(feed.run())
    error = ""
    try:
        yield feed
    except CorralError as problem:
        error = str(problem)
        raise
    except BaseException as problem:  # cancelled or a bug: the last message names it
        error = type(problem).__name__
        raise
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_WITHIN_S):
                await feed.send(last=True, error=error)
        except TimeoutError:
            log.warning("progress.final_message_lost", op=topic.op_id)


def human_size(count: int) -> str:
    """In LocalAI's format: one decimal, binary units."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
