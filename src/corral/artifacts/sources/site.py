"""Downloads that nodes of a site share: one of them fetches a blob from its source, and the others take the bytes from
it while they arrive. Everybody verifies the digest."""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never
from urllib.parse import urlsplit

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import BlobSource, BlobStream, Share, TurnEnded
from corral.artifacts.digests import Digest
from corral.artifacts.errors import ArtifactError, DigestMismatch, PolicyRefused, SourceRejected, SourceUnavailable
from corral.artifacts.net.client import Outbound
from corral.artifacts.settings import NetworkPolicy, Peer

BLOB_PATH = "/artifacts/blobs/"
"""A worker serves `BLOB_PATH + digest`, with ranges: whole blobs, and for `WAIT_HEADER` those that it still fetches."""
WAIT_HEADER = "x-corral-wait"

CONNECT_S = 3.0
ANSWER_S = 10.0
"""A node that is alive answers within two seconds, if only that it has nothing new."""
ASK_AGAIN_S = 10.0
"""While bytes arrive: whether the leader is slow."""
IDLE_S = 4.0
"""Without a byte, the coordinator is asked sooner."""
TERM_S = 10.0
"""What the leader sends is measured for this long."""
TRIAL_S = 5.0
TRIAL_BYTES = 256 * 1024
CLEARLY_TIMES = 3.0
PATIENCE_S = 12.0
"""How long a node waits for another that does not serve it. A dead leader is replaced within this time."""
NOTHING_S = 20.0
"""How long a node waits for bytes from any leader before it fetches the blob alone. A leader that gets none is replaced
before that, but nobody waits for a series of leaders."""


@dataclass(frozen=True, slots=True)
class LeadNow:
    """This node fetches the blob, for all of the site."""


@dataclass(frozen=True, slots=True)
class FollowNode:
    node: str
    peer: Peer


@dataclass(frozen=True, slots=True)
class FetchAlone:
    """This node fetches the blob for itself only."""

    leader_failed: bool = False
    """The site's leader has just failed after all its retries. So the source is tried, but not for as long again."""


@dataclass(frozen=True, slots=True)
class TrySource:
    """This node fetches from the source for a moment, to see whether that is faster than its leader."""


@dataclass(frozen=True, slots=True)
class AskLater:
    pass


Turn = LeadNow | FollowNode | FetchAlone | TrySource | AskLater


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState:
    """How far this node is with a blob."""

    offset: int
    bytes_left: int | None = None
    unreachable: str = ""
    followed: bool = False
    leader: str = ""
    """The node of which the rates are."""
    received_bytes_per_s: float | None = None
    tried_bytes_per_s: float | None = None


class Site(Protocol):
    """The coordinator, called from threads."""

    def claim(self, digest: Digest, state: ClaimState) -> Turn: ...

    def moved(self, digest: Digest, offset: int) -> None:
        """Records progress of a blob that this node fetches for all."""

    def is_lost(self, digest: Digest) -> bool:
        """Whether another node fetches now what this node fetched for all."""

    def ended(self, digest: Digest, *, is_done: bool, has_failed: bool) -> None:
        """This node no longer fetches the blob for all."""

    def avoids(self, node: str) -> bool:
        """Whether the node was unreachable, or sent wrong bytes, a short time ago."""

    def avoid(self, node: str, *, reason: str) -> None: ...

    def now_s(self) -> float: ...

    def pause_s(self, attempt: int) -> float:
        """How long to wait before asking for the `attempt`th time."""


@dataclass(frozen=True, slots=True)
class SharedDownloads:
    site: Site
    outbound: Outbound
    policy: NetworkPolicy

    @contextmanager
    def join(self, digest: Digest, size: int | None) -> Iterator[Share]:
        share = _Share(self, digest, size)
        try:
            yield share
        except BaseException as error:
            if isinstance(error, DigestMismatch):
                share.mistrust()
            # What went wrong on this machine says nothing about the source: another node leads then.
            failed = isinstance(error, SourceUnavailable | SourceRejected | PolicyRefused)
            share.end(is_done=False, has_failed=failed)
            raise
        share.end(is_done=True, has_failed=False)


@dataclass(slots=True)
class _Share:
    downloads: SharedDownloads
    digest: Digest
    size: int | None
    leads: bool = False
    leader_failed: bool = False
    unreachable: str = ""
    waiting_since_s: float | None = None
    no_byte_since_s: float | None = None
    pauses: int = 0
    following: FollowNode | None = field(default=None, repr=False)
    senders: set[str] = field(default_factory=set)
    """The nodes that sent bytes of it."""
    receipt: "_Receipt | None" = None
    received_bytes_per_s: float | None = None
    trial: "_Trial | None" = None
    offset: int = 0

    @property
    def is_trial(self) -> bool:
        return self.trial is not None

    def next_source(self, offset: int, cancel: CancelToken) -> BlobSource | None:
        site = self.downloads.site
        self.offset, tried = offset, self._end_trial(offset)
        while True:
            cancel.check()
            turn = site.claim(self.digest, self._state(offset, tried))
            tried = None
            match turn:
                case LeadNow() | FetchAlone() | TrySource():
                    self._own(turn)
                    return None
                case AskLater():
                    if self._waits_too_long():
                        self._own(FetchAlone())
                        return None
                    self._pause(cancel)
                case FollowNode():
                    if self._waits_too_long() or not self._may_follow(turn, cancel):
                        self._own(FetchAlone())
                        return None
                    self._follow(turn)
                    return GrowingSource(self, turn)
                case _:
                    assert_never(turn)

    def _own(self, turn: "LeadNow | FetchAlone | TrySource") -> None:
        self.leads = isinstance(turn, LeadNow)
        self.leader_failed = isinstance(turn, FetchAlone) and turn.leader_failed
        self.receipt = None
        if isinstance(turn, TrySource):
            self.trial = _Trial(self.offset, self.downloads.site.now_s())
        self.pauses = 0

    def _state(self, offset: int, tried: float | None) -> ClaimState:
        if self.receipt is not None:
            elapsed_s = self.downloads.site.now_s() - self.receipt.since_s
            if elapsed_s >= TERM_S:
                self.received_bytes_per_s = self.receipt.count / elapsed_s
                self.receipt = None
        return ClaimState(
            offset=offset,
            bytes_left=self.size - offset if self.size is not None else None,
            unreachable=self.unreachable,
            followed=self.following is not None,
            leader=self.following.node if self.following is not None else "",
            received_bytes_per_s=self.received_bytes_per_s,
            tried_bytes_per_s=tried,
        )

    def _follow(self, turn: FollowNode) -> None:
        if self.following is not None and self.following.node != turn.node:
            self.receipt = self.received_bytes_per_s = None
        self.following = turn
        self.receipt = self.receipt or _Receipt(self.downloads.site.now_s())

    def _may_follow(self, turn: FollowNode, cancel: CancelToken) -> bool:
        site = self.downloads.site
        if turn.node != self.unreachable:
            self.waiting_since_s = None
            return not site.avoids(turn.node)
        # The leader of which this node gets nothing still reports progress, or its lease is about to end.
        now_s = site.now_s()
        self.waiting_since_s = self.waiting_since_s or now_s
        if now_s - self.waiting_since_s > PATIENCE_S:
            site.avoid(turn.node, reason="unreachable")
            return False
        self._pause(cancel)
        return True

    def _waits_too_long(self) -> bool:
        now_s = self.downloads.site.now_s()
        self.no_byte_since_s = self.no_byte_since_s or now_s
        return now_s - self.no_byte_since_s > NOTHING_S

    def _pause(self, cancel: CancelToken) -> None:
        self.pauses += 1
        cancel.wait(self.downloads.site.pause_s(self.pauses))

    def _end_trial(self, offset: int) -> float | None:
        trial, self.trial = self.trial, None
        return trial.rate(offset, self.downloads.site.now_s()) if trial is not None else None

    def got(self, count: int) -> None:
        self.unreachable, self.waiting_since_s, self.no_byte_since_s, self.pauses = "", None, None, 0
        if self.receipt is not None:
            self.receipt.count += count
        if self.following is not None:
            self.senders.add(self.following.node)

    def turn(self, cancel: CancelToken) -> CancelToken:
        return _TurnToken(self, cancel)

    def is_over(self) -> bool:
        if self.trial is not None:
            return self.trial.is_over(self.offset, self.downloads.site.now_s(), self.received_bytes_per_s or 0.0)
        return self.leads and self.downloads.site.is_lost(self.digest)

    def end_turn(self) -> None:
        if self.leads:
            self.leads = False
            self.downloads.site.ended(self.digest, is_done=False, has_failed=False)

    def moved(self, offset: int) -> None:
        self.offset = offset
        if self.leads:
            self.downloads.site.moved(self.digest, offset)

    def lost(self, source: BlobSource, error: ArtifactError) -> None:
        if self.following is not None and not isinstance(error, AskAgain):
            self.unreachable = self.following.node

    def mistrust(self) -> None:
        for node in self.senders:
            self.downloads.site.avoid(node, reason="wrong bytes")

    def end(self, *, is_done: bool, has_failed: bool) -> None:
        if self.leads:
            self.downloads.site.ended(self.digest, is_done=is_done, has_failed=has_failed)


@dataclass(slots=True)
class _Receipt:
    """What one leader has sent since."""

    since_s: float
    count: int = 0


@dataclass(slots=True)
class _Trial:
    offset: int
    since_s: float

    def rate(self, offset: int, now_s: float) -> float:
        return (offset - self.offset) / max(now_s - self.since_s, 0.001)

    def is_over(self, offset: int, now_s: float, received: float) -> bool:
        """At once if it is clearly won: the leader of the site fetches the same bytes."""
        elapsed_s, count = now_s - self.since_s, offset - self.offset
        is_won = elapsed_s >= 1.0 and count >= TRIAL_BYTES and self.rate(offset, now_s) > received * CLEARLY_TIMES
        return is_won or elapsed_s >= TRIAL_S


class _TurnToken(CancelToken):
    """Ends what this node fetches from the source also while it waits for bytes."""

    def __init__(self, share: _Share, cancel: CancelToken) -> None:
        super().__init__(cancel)
        self._share = share

    @property
    def cancelled(self) -> bool:
        return super().cancelled or self._share.is_over()

    def check(self) -> None:
        super().check()
        if self._share.is_over():
            self._share.end_turn()
            raise TurnEnded


class AskAgain(SourceUnavailable):
    """The node serves the blob, but may no longer be the one to take it from."""


@dataclass(slots=True)
class GrowingSource:
    """A blob of another node that may still be fetching it. One response has what is new there, so a node without news
    differs from one that does not answer."""

    share: _Share
    turn: FollowNode

    @property
    def label(self) -> str:
        return f"{urlsplit(self.turn.peer.base_url).netloc}"

    @contextmanager
    def open(self, offset: int, cancel: CancelToken) -> Iterator[BlobStream]:
        shared = self.share.downloads
        host = urlsplit(self.turn.peer.base_url).netloc.lower()
        limits = replace(shared.outbound.limits, connect_s=CONNECT_S, headers_s=ANSWER_S, stall_window_s=ANSWER_S)
        outbound = shared.outbound.allowing(replace(shared.policy, plain_http_hosts=frozenset((host,))), limits)
        try:
            with closing(_GrowingStream(self, outbound, cancel, offset)) as stream:
                yield stream
        finally:
            outbound.close()


class _GrowingStream:
    def __init__(self, source: GrowingSource, outbound: Outbound, cancel: CancelToken, offset: int) -> None:
        self.offset = offset
        self.total: int | None = None
        self._source, self._outbound, self._cancel = source, outbound, cancel
        self._position = offset
        self._parts: Generator[bytes] | None = None
        self._site = source.share.downloads.site
        self._asked_s = self._news_s = self._site.now_s()

    def read(self, count: int) -> bytes:
        while self.total is None or self._position < self.total:
            if self._site.now_s() - self._asked_s > ASK_AGAIN_S:
                raise AskAgain(f"{self._source.label} may be slow.")
            part = next(self._parts, b"") if self._parts is not None else b""
            if part:
                self._position += len(part)
                self._news_s = self._site.now_s()
                self._source.share.got(len(part))
                return part
            if self._site.now_s() - max(self._asked_s, self._news_s) > IDLE_S:
                raise AskAgain(f"{self._source.label} may no longer lead.")
            self._parts = self._request(count)
        return b""

    def close(self) -> None:
        if self._parts is not None:
            self._parts.close()

    def _request(self, count: int) -> Generator[bytes]:
        peer = self._source.turn.peer
        url = f"{peer.base_url.rstrip('/')}{BLOB_PATH}{self._source.share.digest}"
        headers = {
            "Authorization": f"Bearer {peer.token}",
            "Range": f"bytes={self._position}-",
            WAIT_HEADER: "1",
        }
        accepted = frozenset({204, 416})
        with self._outbound.open(url, cancel=self._cancel, headers=headers, accept_statuses=accepted) as response:
            total = response.headers.get("content-range", "").partition("/")[2]
            if total.isdigit():
                self.total = int(total)
            if response.status in accepted:
                return
            if response.status != 206:
                raise SourceRejected(f"{self._source.label} ignored the requested range.", status=response.status)
            while part := response.read(count):
                yield part
