"""The health of one node, from a round trip on the bus and the age of its heartbeat."""

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
    """Of the process that answered, if it reported it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRecord:
    """The part of a node that health checks need. It is small because every pass reads it for every node."""

    node_id: NodeId
    node_type: NodeType
    approved: bool
    epoch: int
    reports_epoch: bool
    """Corral workers do, LocalAI workers do not."""
    presence: Presence
    presence_reason: str
    presence_since: int
    last_heartbeat: int | None
    bus_answered: bool
    bus_failures: int
    bus_no_responders: bool

    def is_answered_by(self, probe: BusProbe) -> bool:
        """An answer of an earlier worker process does not count for the registered one."""
        return probe.answered and (not self.reports_epoch or probe.epoch == self.epoch)

    @property
    def expected_on_bus(self) -> bool:
        """Agents do not use the bus, and a node that waits for approval has no access to it."""
        return self.approved and self.node_type is NodeType.BACKEND


def health_record_of(node: Node) -> HealthRecord:
    return HealthRecord(
        node_id=node.id,
        node_type=node.node_type,
        approved=node.approved,
        epoch=node.epoch,
        reports_epoch=node.instance is not None,
        presence=node.presence,
        presence_reason=node.presence_reason,
        presence_since=node.presence_since,
        last_heartbeat=node.last_heartbeat,
        bus_answered=node.bus_answered,
        bus_failures=node.bus_failures,
        bus_no_responders=node.bus_no_responders,
    )


def with_health_record(node: Node, record: HealthRecord) -> Node:
    return replace(
        node,
        presence=record.presence,
        presence_reason=record.presence_reason,
        bus_answered=record.bus_answered,
        bus_failures=record.bus_failures,
        bus_no_responders=record.bus_no_responders,
    )


def any_live(records: Iterable[HealthRecord]) -> bool:
    return any(record.presence is Presence.LIVE and record.expected_on_bus for record in records)


def judge_health(
    record: HealthRecord,
    probe: BusProbe | None,
    *,
    now_ms: int,
    listened_s: float,
    limits: Limits,
    others_live: bool = False,
) -> HealthRecord:
    """The record to store after this round trip (`probe` None: it could not be tried)."""
    record = _with_probe(record, probe, limits)
    heartbeat_age_s = None if record.last_heartbeat is None else max(0, now_ms - record.last_heartbeat) / 1000
    if heartbeat_age_s is not None and heartbeat_age_s >= limits.suspect_after_s:
        if listened_s < limits.suspect_after_s:
            # We have not listened long enough to count the silence, and an old heartbeat proves nothing.
            return record
        if record.presence is Presence.GONE and (probe is None or not record.is_answered_by(probe)):
            # Still silent on both paths, however short we have listened: only an answer brings it back.
            return record
    verdict = classify_evidence(
        Evidence(
            heartbeat_silence_s=None if heartbeat_age_s is None else min(heartbeat_age_s, listened_s),
            listened_s=listened_s,
            expected_on_bus=record.expected_on_bus,
            bus_answered=record.bus_answered,
            bus_failures=record.bus_failures,
            bus_no_responders=record.bus_no_responders,
            not_live_s=_not_live_s(record, now_ms=now_ms, listened_s=listened_s),
            others_live=others_live,
        ),
        limits,
    )
    if verdict is None or (not record.approved and verdict.event.proves):
        # A node without approval cannot be proven live.
        return record
    presence = next_presence(record.presence, verdict.event)
    if presence is record.presence and (presence is not Presence.GONE or verdict.reason == record.presence_reason):
        # The same verdict again. For an offline node the silent path may have changed.
        return record
    return replace(record, presence=presence, presence_reason=verdict.reason)


def _not_live_s(record: HealthRecord, *, now_ms: int, listened_s: float) -> float:
    """An offline node was silent for the whole limit before."""
    if record.presence is Presence.LIVE:
        return 0.0
    if record.presence is Presence.GONE:
        return listened_s
    return min(max(0, now_ms - record.presence_since) / 1000, listened_s)


def _with_probe(record: HealthRecord, probe: BusProbe | None, limits: Limits) -> HealthRecord:
    if probe is None:
        return record
    answered = record.is_answered_by(probe)
    if answered and record.bus_answered and not record.bus_failures:
        return record
    if answered:
        return replace(record, bus_answered=True, bus_failures=0, bus_no_responders=False)
    # Counted up to the limit only, so that the row of an offline node is not rewritten at every pass.
    failures = min(record.bus_failures + 1, limits.bus_failures)
    return replace(record, bus_failures=failures, bus_no_responders=probe.no_responders)


def pick_changed(
    records: Iterable[HealthRecord],
    probes: Mapping[NodeId, BusProbe],
    *,
    now_ms: int,
    listened_s: float,
    limits: Limits,
    others_live: bool = False,
) -> list[NodeId]:
    """Ids of the nodes whose record changes."""

    def judged(record: HealthRecord) -> HealthRecord:
        probe = probes.get(record.node_id)
        return judge_health(record, probe, now_ms=now_ms, listened_s=listened_s, limits=limits, others_live=others_live)

    return [record.node_id for record in records if judged(record) != record]
