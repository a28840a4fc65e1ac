"""One look at one node: what its row becomes after a bus round trip and the age of its heartbeat."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from corral.core.nodes.node import Node, NodeId, NodeType
from corral.core.nodes.presence import Evidence, Limits, Presence, classify_evidence, next_presence


@dataclass(frozen=True, slots=True)
class BusProbe:
    node_id: NodeId
    answered: bool
    no_responders: bool = False
    epoch: int | None = None
    """Of the process that answered, if it told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRecord:
    """The part of a node that health is judged by: little, because every pass reads it of every node."""

    node_id: NodeId
    node_type: NodeType
    approved: bool
    epoch: int
    tells_epoch: bool
    """Corral's workers do, LocalAI's do not."""
    presence: Presence
    presence_reason: str
    presence_since: int
    last_heartbeat: int | None
    bus_answered: bool
    bus_failures: int
    bus_no_responders: bool

    def is_answered_by(self, probe: BusProbe) -> bool:
        """The answer of an earlier process says nothing about the one that is registered now."""
        return probe.answered and (not self.tells_epoch or probe.epoch == self.epoch)

    @property
    def expected_on_bus(self) -> bool:
        """Agents do not serve the bus, and a node that waits for approval has no way onto it."""
        return self.approved and self.node_type is NodeType.BACKEND


def health_record_of(node: Node) -> HealthRecord:
    return HealthRecord(
        node_id=node.id,
        node_type=node.node_type,
        approved=node.approved,
        epoch=node.epoch,
        tells_epoch=node.instance is not None,
        presence=node.presence,
        presence_reason=node.presence_reason,
        presence_since=node.presence_since,
        last_heartbeat=node.last_heartbeat,
        bus_answered=node.bus_answered,
        bus_failures=node.bus_failures,
        bus_no_responders=node.bus_no_responders,
    )


def with_health_record(node: Node, pulse: HealthRecord) -> Node:
    return replace(
        node,
        presence=pulse.presence,
        presence_reason=pulse.presence_reason,
        bus_answered=pulse.bus_answered,
        bus_failures=pulse.bus_failures,
        bus_no_responders=pulse.bus_no_responders,
    )


def any_live(pulses: Iterable[HealthRecord]) -> bool:
    return any(pulse.presence is Presence.LIVE and pulse.expected_on_bus for pulse in pulses)


def judge_health(
    pulse: HealthRecord,
    probe: BusProbe | None,
    *,
    now_ms: int,
    listened_s: float,
    limits: Limits,
    others_live: bool = False,
) -> HealthRecord:
    """The pulse as it should be stored after this round trip (None: we could not try)."""
    pulse = _with_probe(pulse, probe, limits)
    beat_age_s = None if pulse.last_heartbeat is None else max(0, now_ms - pulse.last_heartbeat) / 1000
    if beat_age_s is not None and beat_age_s >= limits.suspect_after_s:
        if listened_s < limits.suspect_after_s:
            # We have not listened long enough to hold the silence against it, and an old beat proves no life either.
            return pulse
        if pulse.presence is Presence.GONE and (probe is None or not pulse.is_answered_by(probe)):
            # Silent on both paths still, however short we have been listening: only a sign of life brings it back.
            return pulse
    verdict = classify_evidence(
        Evidence(
            beat_silence_s=None if beat_age_s is None else min(beat_age_s, listened_s),
            listened_s=listened_s,
            expected_on_bus=pulse.expected_on_bus,
            bus_answered=pulse.bus_answered,
            bus_failures=pulse.bus_failures,
            bus_no_responders=pulse.bus_no_responders,
            not_live_s=_not_live_s(pulse, now_ms=now_ms, listened_s=listened_s),
            others_live=others_live,
        ),
        limits,
    )
    if verdict is None or (not pulse.approved and verdict.event.proves):
        # Nothing can be proven of a machine that may not work yet.
        return pulse
    presence = next_presence(pulse.presence, verdict.event)
    if presence is pulse.presence and (presence is not Presence.GONE or verdict.reason == pulse.presence_reason):
        # The same verdict again: nothing happened. Of a node that is gone, which path is silent may have changed.
        return pulse
    return replace(pulse, presence=presence, presence_reason=verdict.reason)


def _not_live_s(pulse: HealthRecord, *, now_ms: int, listened_s: float) -> float:
    """A node that is gone was silent for the limit before that was said."""
    if pulse.presence is Presence.LIVE:
        return 0.0
    if pulse.presence is Presence.GONE:
        return listened_s
    return min(max(0, now_ms - pulse.presence_since) / 1000, listened_s)


def _with_probe(pulse: HealthRecord, probe: BusProbe | None, limits: Limits) -> HealthRecord:
    if probe is None:
        return pulse
    answered = pulse.is_answered_by(probe)
    if answered and pulse.bus_answered and not pulse.bus_failures:
        return pulse
    if answered:
        return replace(pulse, bus_answered=True, bus_failures=0, bus_no_responders=False)
    # Counted up to the limit only: a node that stays away is not rewritten at every pass.
    failures = min(pulse.bus_failures + 1, limits.bus_failures)
    return replace(pulse, bus_failures=failures, bus_no_responders=probe.no_responders)


def pick_news(
    pulses: Iterable[HealthRecord],
    probes: Mapping[NodeId, BusProbe],
    *,
    now_ms: int,
    listened_s: float,
    limits: Limits,
    others_live: bool = False,
) -> list[NodeId]:
    """The nodes about which there is something to write. Of a quiet herd, none."""

    def judged(pulse: HealthRecord) -> HealthRecord:
        probe = probes.get(pulse.node_id)
        return judge_health(pulse, probe, now_ms=now_ms, listened_s=listened_s, limits=limits, others_live=others_live)

    return [pulse.node_id for pulse in pulses if judged(pulse) != pulse]
