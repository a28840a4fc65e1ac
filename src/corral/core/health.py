"""One look at one node: what its row becomes after a bus round trip and the age of its heartbeat."""

from dataclasses import dataclass, replace

from corral.core.nodes import Node, NodeId, NodeType
from corral.core.presence import Evidence, Limits, Presence, classify_evidence, next_presence


@dataclass(frozen=True, slots=True)
class BusProbe:
    node_id: NodeId
    answered: bool
    no_responders: bool = False


def should_probe(node: Node) -> bool:
    """Agents do not serve the bus, and a node that waits for approval has no way onto it."""
    return node.approved and node.node_type is NodeType.BACKEND


def judge_node(node: Node, probe: BusProbe | None, *, now_ms: int, listened_s: float, limits: Limits) -> Node:
    """The node as it should be stored after this round trip (None: we could not try)."""
    if probe is not None and probe.answered:
        node = replace(node, bus_answered=True, bus_failures=0, bus_no_responders=False)
    elif probe is not None:
        # Counted up to the limit only: a node that stays away is not rewritten at every pass.
        failures = min(node.bus_failures + 1, limits.bus_failures)
        node = replace(node, bus_failures=failures, bus_no_responders=probe.no_responders)
    beat_age_s = None if node.last_heartbeat is None else max(0, now_ms - node.last_heartbeat) / 1000
    if beat_age_s is not None and beat_age_s >= limits.suspect_after_s:
        if listened_s < limits.suspect_after_s:
            # We have not listened long enough to hold the silence against it, and an old beat proves no life either.
            return node
        if node.presence is Presence.GONE and (probe is None or not probe.answered):
            # Silent on both paths still, however short we have been listening: only a sign of life brings it back.
            return node
    verdict = classify_evidence(
        Evidence(
            beat_silence_s=None if beat_age_s is None else min(beat_age_s, listened_s),
            listened_s=listened_s,
            expected_on_bus=should_probe(node),
            bus_answered=node.bus_answered,
            bus_failures=node.bus_failures,
            bus_no_responders=node.bus_no_responders,
        ),
        limits,
    )
    if verdict is None or (not node.approved and verdict.event.proves):
        # Nothing can be proven of a machine that may not work yet.
        return node
    presence = next_presence(node.presence, verdict.event)
    if presence is node.presence:
        # The same verdict again: its text may have aged ("silent for 40 s"), but nothing happened.
        return node
    return replace(node, presence=presence, presence_reason=verdict.reason)
