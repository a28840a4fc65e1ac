"""Coordinates the downloads of this worker with the other nodes of its site, through its frontend. Without an answer
it fetches everything itself."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from corral.artifacts.digests import Digest
from corral.artifacts.settings import Peer
from corral.artifacts.sources.site import AskLater, ClaimState, FetchAlone, FollowNode, LeadNow, TrySource, Turn
from corral.bus.node_api import DOWNLOADS_MOST, BlobAnswer, BlobClaim, DownloadsReply, DownloadsRequest
from corral.core.backoff import Backoff
from corral.core.errors import CorralError, Forbidden, InvalidInput, NotFound
from corral.system import Clock, Ids
from corral.system.cancel_tasks import end_tasks

log = structlog.get_logger()

RENEW_EVERY_S = 2.0
ANSWER_WITHIN_S = 10.0
UNANSWERED_S = 8.0
"""One slow answer, or a frontend that restarts, does not send a whole site to the registry. After this time without any
answer, a worker fetches alone."""
ALONE_FOR_S = 15.0
"""Downloads do not ask the frontend for one to two times this."""
PAUSES = Backoff(base_s=0.5, cap_s=3.0, jitter=0.5)
RATE_MOST = 1e12
AVOID_FOR_S = 120.0
MEASURED_BYTES = 1 << 20


@dataclass(slots=True)
class _Led:
    offset: int
    first_offset: int
    since_s: float
    is_lost: bool = False


class SiteCoordinator:
    def __init__(self, ask: Callable[[DownloadsRequest], Awaitable[DownloadsReply]], *, clock: Clock, ids: Ids) -> None:
        self._ask, self._clock, self._ids = ask, clock, ids
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._led: dict[Digest, _Led] = {}
        self._ended: dict[Digest, BlobClaim] = {}
        self._wake = asyncio.Event()
        self._alone_until_s = 0.0
        self._unanswered_since_s: float | None = None
        self._avoided: dict[str, float] = {}
        self._rate = 0.0
        self._closed = False

    # Called from the threads of downloads

    def claim(self, digest: Digest, state: ClaimState) -> Turn:
        if self._closed or self.now_s() < self._alone_until_s:
            return FetchAlone()
        if state.tried_bytes_per_s is not None:
            self._rate = state.tried_bytes_per_s
        claim = BlobClaim(
            digest=digest,
            bytes_done=state.offset,
            rate_bytes_per_s=min(self._rate, RATE_MOST),
            leader=state.leader,
            received_bytes_per_s=state.received_bytes_per_s,
            bytes_left=state.bytes_left,
            tried=state.tried_bytes_per_s is not None,
            unreachable=state.unreachable,
            followed=state.followed,
        )
        asked = asyncio.run_coroutine_threadsafe(self._ask_one(claim), self._loop)
        answer = asked.result()
        if answer is None:
            return FetchAlone() if self.now_s() < self._alone_until_s else AskLater()
        if answer.leads:
            with self._lock:
                self._led[digest] = _Led(state.offset, state.offset, self.now_s())
            return LeadNow()
        if answer.tries:
            return TrySource()
        if answer.waits:
            return AskLater()
        if not answer.node:
            return FetchAlone(leader_failed=answer.leader_failed)
        return FollowNode(answer.node, Peer(base_url=answer.url, token=answer.token))

    def moved(self, digest: Digest, offset: int) -> None:
        led = self._led.get(digest)
        if led is not None:
            led.offset = offset

    def is_lost(self, digest: Digest) -> bool:
        led = self._led.get(digest)
        return led is not None and led.is_lost

    def ended(self, digest: Digest, *, is_done: bool, has_failed: bool) -> None:
        with self._lock:
            led = self._led.pop(digest, None)
            if led is None:
                return
            if led.is_lost and not is_done:
                log.info("download.lead_lost", digest=digest)
                return
            fetched = led.offset - led.first_offset
            if fetched >= MEASURED_BYTES:
                self._rate = fetched / max(self.now_s() - led.since_s, 0.001)
            self._ended[digest] = BlobClaim(
                digest=digest,
                bytes_done=led.offset,
                is_done=is_done,
                has_failed=has_failed,
                releases=not is_done and not has_failed,
            )
        if not self._closed:
            self._loop.call_soon_threadsafe(self._wake.set)

    def avoids(self, node: str) -> bool:
        return self.now_s() < self._avoided.get(node, 0.0)

    def avoid(self, node: str, *, reason: str) -> None:
        log.warning("download.node_avoided", node=node, reason=reason)
        self._avoided[node] = self.now_s() + AVOID_FOR_S

    def now_s(self) -> float:
        return self._clock.monotonic_s()

    def pause_s(self, attempt: int) -> float:
        return PAUSES.delay_s(attempt, self._ids.draw())

    # On the event loop

    async def _ask_one(self, claim: BlobClaim) -> BlobAnswer | None:
        answers = await self._send([claim])
        return answers.get(claim.digest)

    async def _send(self, claims: list[BlobClaim]) -> dict[str, BlobAnswer]:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reply = await self._ask(DownloadsRequest(blobs=claims))
        except (NotFound, Forbidden, InvalidInput) as error:  # this frontend does not coordinate downloads
            self._go_alone(error)
            return {}
        except (CorralError, TimeoutError) as error:
            self._unanswered_since_s = self._unanswered_since_s or self.now_s()
            if self.now_s() - self._unanswered_since_s > UNANSWERED_S:
                self._go_alone(error)
            return {}
        self._unanswered_since_s = None
        return {answer.digest: answer for answer in reply.blobs}

    def _go_alone(self, error: Exception) -> None:
        """For a time of its own length, so that the workers of a site do not return to their frontend together."""
        self._unanswered_since_s = None
        self._alone_until_s = self.now_s() + ALONE_FOR_S * (1 + self._ids.draw())
        log.info("download.not_coordinated", error=str(error) or "no answer in time")

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Reports the progress of blobs that this worker fetches for its site."""
        task = asyncio.create_task(self._renew(), name="site downloads")
        try:
            yield
        finally:
            self._closed = True
            await end_tasks([task])

    async def _renew(self) -> None:
        while True:
            try:
                async with asyncio.timeout(RENEW_EVERY_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            with self._lock:
                ended, self._ended = list(self._ended.values()), {}
                claims = [BlobClaim(digest=key, bytes_done=led.offset) for key, led in self._led.items()]
            for first in range(0, len(ended) + len(claims), DOWNLOADS_MOST):
                await self._renew_some([*ended, *claims][first : first + DOWNLOADS_MOST])

    async def _renew_some(self, claims: list[BlobClaim]) -> None:
        answers = await self._send(claims)
        for claim in claims:
            answer, led = answers.get(claim.digest), self._led.get(Digest(claim.digest))
            if led is not None and answer is not None and answer.node and not claim.is_done:
                led.is_lost = True
