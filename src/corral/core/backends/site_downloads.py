"""Which node of a site fetches a blob from its source, while the other nodes of the site take the bytes from it.

A wrong decision costs little: every node keeps the bytes it has, so a new leader continues where it stands."""

from dataclasses import dataclass

SITE_LABEL = "site"
DEFAULT_SITE = "default"

LEASE_S = 8.0
"""A leader renews every two seconds. A busy machine may miss some renewals."""
STALL_S = 15.0
"""A leader that got no byte for so long is replaced."""
TERM_S = 10.0
"""A leader is not called slow before that."""
SLOW_BYTES_PER_S = 128 * 1024
SLOWER_TIMES = 4
"""A leader is slow if another node is known to be this much faster."""
NEAR_BYTES = 16 << 20
NEAR_S = 10.0
"""A node is near the leader if it lacks no more of its bytes than this, or can fetch them in this time."""
AHEAD_BYTES = 64 << 20
"""A node that has so much more than the leader takes its place."""
NEAREST_FIRST_S = 6.0
"""A lost leader is replaced by a node that is near it. The others take its place only after this time."""
TRIAL_EVERY_S = 15.0
"""One follower at a time tries the source, to see whether it would be faster there."""
TRIAL_WORTH_S = 20.0
"""A follower that has the rest within this time does not try."""
TRIAL_TIMES = 1.5
"""The source must be so much faster than the leader."""
TRIAL_SHARE = 3
"""A follower that fetches from the source at no less than this part of the leader's own rate can lead all: its trial
and the leader share the source. Otherwise the way to the leader is slow, and it fetches for itself."""
DONE_S = 600.0
"""How long a node is named as the one that has a blob. Later installs get their peers with the command."""
FAILED_S = 10.0
"""Nodes that followed a leader which failed wait for no other: they try for themselves. Later downloads, for example
those of a retry, have a leader again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteDownload:
    """The stored state of one blob in one site. Times are ages, by the store's clock."""

    node: str
    bytes_done: int
    bytes_at_start: int
    """What the leader already had when it became the leader."""
    granted_s: float
    renewed_s: float
    progressed_s: float
    is_done: bool = False
    has_failed: bool = False
    displaced: str = ""
    """The node that led before and was replaced."""
    tried_s: float | None = None
    """How long ago a follower last tried the source."""

    @property
    def rate_bytes_per_s(self) -> float:
        return (self.bytes_done - self.bytes_at_start) / max(self.granted_s, 0.001)


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadClaim:
    """What a node says about a blob when it asks for it, or reports on it."""

    digest: str
    bytes_done: int = 0
    rate_bytes_per_s: float = 0.0
    """How fast this node last fetched something from a source outside the site; 0 if unknown."""
    leader: str = ""
    """The node that this node followed last. What it measured says nothing about another one."""
    received_bytes_per_s: float | None = None
    """How fast the leader sent, measured for at least `TERM_S`. None: not yet."""
    bytes_left: int | None = None
    tried: bool = False
    """`rate_bytes_per_s` is of this blob: the node has just tried its source."""
    unreachable: str = ""
    """A node that did not serve the blob."""
    followed: bool = False
    """This download has taken bytes from a leader, or tried to."""
    is_done: bool = False
    has_failed: bool = False
    releases: bool = False
    """The node needs the blob no longer."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Fetch it from its source, for all."""


@dataclass(frozen=True, slots=True)
class Follow:
    node: str


@dataclass(frozen=True, slots=True)
class Alone:
    """Fetch it from its source, for this node only."""

    after_failure: bool = False
    """The site's leader has just tried the source for as long as this node would."""


@dataclass(frozen=True, slots=True)
class Try:
    """Fetch it from its source for a moment, then ask again."""


@dataclass(frozen=True, slots=True)
class WaitForLeader:
    """Another node is expected to lead soon."""


Answer = Lead | Follow | Alone | Try | WaitForLeader


def site_of(labels: dict[str, str]) -> str:
    return labels.get(SITE_LABEL) or DEFAULT_SITE


def decide_claim(found: SiteDownload | None, claim: DownloadClaim, *, node: str, serves: bool) -> Answer:
    """`serves`: whether the node that has or fetches the blob is healthy and has a file server."""
    if found is None or found.node == node:
        return Lead()
    if found.has_failed:
        return Alone(after_failure=True) if claim.followed and found.renewed_s < FAILED_S else Lead()
    if claim.is_done and not found.is_done:
        return Lead()
    if found.is_done:
        if not serves or found.renewed_s >= DONE_S or claim.unreachable == found.node:
            return Lead()
        if claim.tried:
            return Alone() if _is_trial_won(found, claim) else Follow(found.node)
        return Try() if _may_try(found, claim) else Follow(found.node)
    if claim.bytes_done > found.bytes_done + max(AHEAD_BYTES, found.rate_bytes_per_s * NEAR_S):
        return Alone() if found.displaced == node else Lead()
    if not serves or found.renewed_s > LEASE_S or found.progressed_s > STALL_S:
        return WaitForLeader() if _waits_for_nearer(found, claim) else Lead()
    if claim.tried:
        return _judge_trial(found, claim)
    if _is_slow(found, claim):
        return Lead()
    return Try() if _may_try(found, claim) else Follow(found.node)


def _is_near(found: SiteDownload, claim: DownloadClaim) -> bool:
    return claim.bytes_done + max(NEAR_BYTES, claim.rate_bytes_per_s * NEAR_S) >= found.bytes_done


def _waits_for_nearer(found: SiteDownload, claim: DownloadClaim) -> bool:
    """A leader that renews its lease but cannot serve is replaced by anybody."""
    if _is_near(found, claim):
        return False
    since_lost_s = max(found.renewed_s - LEASE_S, found.progressed_s - STALL_S)
    return 0 < since_lost_s < NEAREST_FIRST_S


def _is_slow(found: SiteDownload, claim: DownloadClaim) -> bool:
    if found.granted_s < TERM_S or not _is_near(found, claim):
        return False
    rate = found.rate_bytes_per_s
    return rate < SLOW_BYTES_PER_S or rate * SLOWER_TIMES < claim.rate_bytes_per_s


def _may_try(found: SiteDownload, claim: DownloadClaim) -> bool:
    """A follower judges its leader by what arrives: the leader's report may be wrong, and its way to this node slow."""
    received = claim.received_bytes_per_s
    if received is None or claim.leader != found.node or (found.tried_s is not None and found.tried_s < TRIAL_EVERY_S):
        return False
    if claim.bytes_left is not None and claim.bytes_left <= received * TRIAL_WORTH_S:
        return False
    return claim.rate_bytes_per_s == 0 or received * TRIAL_TIMES < claim.rate_bytes_per_s


def _judge_trial(found: SiteDownload, claim: DownloadClaim) -> Answer:
    if not _is_trial_won(found, claim):
        return Follow(found.node)
    return Lead() if claim.rate_bytes_per_s * TRIAL_SHARE >= found.rate_bytes_per_s else Alone()


def _is_trial_won(found: SiteDownload, claim: DownloadClaim) -> bool:
    rate = claim.rate_bytes_per_s
    return claim.leader == found.node and rate > 0 and rate >= (claim.received_bytes_per_s or 0.0) * TRIAL_TIMES
