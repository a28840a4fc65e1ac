"""The presence of a node: a table of transitions, and how evidence becomes an event.

A node is live when it is heard on both paths: a fresh heartbeat *and* an answer on the bus. One alone neither proves
nor restores it, so the two signals cannot make a node flap. Silence on one path makes a node suspect, and gone when it
lasts as long as the offline limit: requests and commands need both paths, so its replicas are moved. Silence on both
paths makes it gone at once.
"""

from dataclasses import dataclass
from enum import StrEnum


class Presence(StrEnum):
    JOINING = "joining"
    """Registered; not heard on both paths yet."""
    LIVE = "live"
    SUSPECT = "suspect"
    GONE = "gone"
    LEFT = "left"
    """Its worker deregistered; only a new registration brings it back."""


class PresenceEvent(StrEnum):
    REGISTERED = "registered"
    """The known worker process registered again, for example to renew its credential."""
    RESTARTED = "restarted"
    """A new worker process registered."""
    DEREGISTERED = "deregistered"
    PROVEN = "proven"
    ONE_PATH_SILENT = "one_path_silent"
    ONE_PATH_LOST = "one_path_lost"
    """Silent on one path for as long as the offline limit, while other nodes are live."""
    ALL_SILENT = "all_silent"

    @property
    def proves(self) -> bool:
        return self is PresenceEvent.PROVEN


_P, _E = Presence, PresenceEvent

TRANSITIONS: dict[tuple[Presence, PresenceEvent], Presence] = {
    (_P.JOINING, _E.REGISTERED): _P.JOINING,
    (_P.JOINING, _E.RESTARTED): _P.JOINING,
    (_P.JOINING, _E.DEREGISTERED): _P.LEFT,
    (_P.JOINING, _E.PROVEN): _P.LIVE,
    (_P.JOINING, _E.ONE_PATH_SILENT): _P.JOINING,
    (_P.JOINING, _E.ONE_PATH_LOST): _P.GONE,
    (_P.JOINING, _E.ALL_SILENT): _P.GONE,
    (_P.LIVE, _E.REGISTERED): _P.LIVE,
    (_P.LIVE, _E.RESTARTED): _P.JOINING,
    (_P.LIVE, _E.DEREGISTERED): _P.LEFT,
    (_P.LIVE, _E.PROVEN): _P.LIVE,
    (_P.LIVE, _E.ONE_PATH_SILENT): _P.SUSPECT,
    (_P.LIVE, _E.ONE_PATH_LOST): _P.GONE,
    (_P.LIVE, _E.ALL_SILENT): _P.GONE,
    (_P.SUSPECT, _E.REGISTERED): _P.SUSPECT,
    (_P.SUSPECT, _E.RESTARTED): _P.JOINING,
    (_P.SUSPECT, _E.DEREGISTERED): _P.LEFT,
    (_P.SUSPECT, _E.PROVEN): _P.LIVE,
    (_P.SUSPECT, _E.ONE_PATH_SILENT): _P.SUSPECT,
    (_P.SUSPECT, _E.ONE_PATH_LOST): _P.GONE,
    (_P.SUSPECT, _E.ALL_SILENT): _P.GONE,
    # A worker that the bus rejects requests a new credential every few seconds: that proves nothing.
    (_P.GONE, _E.REGISTERED): _P.GONE,
    (_P.GONE, _E.RESTARTED): _P.JOINING,
    (_P.GONE, _E.DEREGISTERED): _P.LEFT,
    (_P.GONE, _E.PROVEN): _P.LIVE,
    # Its replicas were moved: only a node that is heard on both paths gets work again.
    (_P.GONE, _E.ONE_PATH_SILENT): _P.GONE,
    (_P.GONE, _E.ONE_PATH_LOST): _P.GONE,
    (_P.GONE, _E.ALL_SILENT): _P.GONE,
    (_P.LEFT, _E.REGISTERED): _P.JOINING,
    (_P.LEFT, _E.RESTARTED): _P.JOINING,
    (_P.LEFT, _E.DEREGISTERED): _P.LEFT,
    # A heartbeat that was sent before the worker deregistered proves nothing.
    (_P.LEFT, _E.PROVEN): _P.LEFT,
    (_P.LEFT, _E.ONE_PATH_SILENT): _P.LEFT,
    (_P.LEFT, _E.ONE_PATH_LOST): _P.LEFT,
    (_P.LEFT, _E.ALL_SILENT): _P.LEFT,
}


def next_presence(presence: Presence, event: PresenceEvent) -> Presence:
    return TRANSITIONS[presence, event]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    suspect_after_s: float = 30.0
    offline_after_s: float = 60.0
    bus_failures: int = 2
    """Consecutive failures; one lost round trip is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    heartbeat_silence_s: float | None
    """Since the last heartbeat, but at most as long as we have listened; None when there never was one."""
    listened_s: float
    expected_on_bus: bool
    """False for agents and for nodes that wait for approval: for them the heartbeat alone counts."""
    bus_answered: bool
    bus_failures: int
    """Consecutive failed round trips. Those that we could not try do not count."""
    bus_no_responders: bool
    """The bus itself said that nobody listens: evidence, where a time-out is none."""
    not_live_s: float = 0.0
    """How long it has not been heard on both paths, as far as we have listened."""
    others_live: bool = False
    """Where no other node is live, the fault is probably ours, and replicas cannot be moved."""


@dataclass(frozen=True, slots=True)
class PresenceVerdict:
    event: PresenceEvent
    reason: str
    """Stored until the next verdict, so it must not contain anything that changes with time."""


def classify_evidence(evidence: Evidence, limits: Limits) -> PresenceVerdict | None:
    """None while the evidence is not sufficient."""
    no_heartbeat = evidence.heartbeat_silence_s is None
    silence_s = evidence.listened_s if evidence.heartbeat_silence_s is None else evidence.heartbeat_silence_s
    heartbeat_late = silence_s >= limits.suspect_after_s
    if not evidence.expected_on_bus:
        if heartbeat_late:
            return PresenceVerdict(PresenceEvent.ALL_SILENT, "no heartbeats received")
        return None if no_heartbeat else PresenceVerdict(PresenceEvent.PROVEN, "")
    bus_late = evidence.bus_failures >= limits.bus_failures
    if not heartbeat_late:
        return None if no_heartbeat else _with_fresh_heartbeat(evidence, limits, bus_late=bus_late)
    if bus_late and (evidence.bus_no_responders or silence_s >= limits.offline_after_s):
        reason = "no heartbeats received, and it is not connected to the message bus"
        return PresenceVerdict(PresenceEvent.ALL_SILENT, reason)
    if bus_late or evidence.bus_answered:
        where = "and it is not connected to the message bus" if bus_late else "but it still answers on the message bus"
        # It became suspect only after it had been silent for a while.
        suspected = evidence.not_live_s >= limits.offline_after_s - limits.suspect_after_s
        lost = suspected and silence_s >= limits.offline_after_s
        return _one_path_silent(f"no heartbeats received, {where}", evidence, lost=lost)
    return None


def _one_path_silent(reason: str, evidence: Evidence, *, lost: bool) -> PresenceVerdict:
    if evidence.others_live and lost:
        return PresenceVerdict(PresenceEvent.ONE_PATH_LOST, f"{reason}; its replicas are replaced on other nodes")
    return PresenceVerdict(PresenceEvent.ONE_PATH_SILENT, reason)


def _with_fresh_heartbeat(evidence: Evidence, limits: Limits, *, bus_late: bool) -> PresenceVerdict | None:
    if bus_late:
        # Two lost round trips, or a command without a responder, make it suspect: its silence has just begun, and the
        # last heartbeat may be older. Whether more arrive is known after the limit for heartbeats.
        silent_s = min(evidence.not_live_s, evidence.listened_s)
        heartbeats = "heartbeats are received, but " if silent_s >= limits.suspect_after_s else ""
        reason = f"{heartbeats}it does not answer on the message bus; check its worker and its connection to the bus"
        return _one_path_silent(reason, evidence, lost=silent_s >= limits.offline_after_s)
    if evidence.bus_answered and evidence.bus_failures == 0:
        return PresenceVerdict(PresenceEvent.PROVEN, "")
    return None
