"""The gate `starts`: a version must have been started on every node that gets it."""

from collections.abc import Iterable, Sequence

from corral.core.backends.gates import GateOutcome, GateVerdict
from corral.core.backends.rollouts import RolloutNode
from corral.core.backends.starts import StartEvidence

STARTS = "starts"
MAX_NAMES = 3


def judge_starts(nodes: Iterable[RolloutNode]) -> list[GateVerdict]:
    """One verdict for each class of nodes that have the new version, or on which it did not start. `nodes`: those whose
    wave has begun."""
    by_class: dict[str, list[RolloutNode]] = {}
    for node in nodes:
        if node.is_done or (node.version_failed and not node.has_left):
            by_class.setdefault(node.member.node_class, []).append(node)
    found = []
    for node_class, group in sorted(by_class.items()):
        outcome, detail = _judge(group)
        found.append(GateVerdict(gate=STARTS, outcome=outcome, detail=detail, node_class=node_class))
    return found


def _judge(nodes: Sequence[RolloutNode]) -> tuple[GateOutcome, str]:
    for node in nodes:
        if node.version_failed:
            return GateOutcome.FAILED, f"{node.member.node_name}: {node.error}"
    untried = [node for node in nodes if node.proof is None or not node.proof.is_tried]
    if untried:
        reason = untried[0].proof.detail if untried[0].proof is not None else "nobody has started it there"
        return GateOutcome.UNJUDGED, f"it was not started on {_names(untried)}: {reason}"
    tested = [node for node in nodes if node.proof is not None and node.proof.evidence is StartEvidence.SMOKE_TEST]
    if not tested:
        return GateOutcome.PASSED, f"it runs on {_names(nodes)}"
    how = tested[0].proof.detail if tested[0].proof is not None else ""
    return GateOutcome.PASSED, f"no model uses it on {_names(tested)}; a smoke test started it: {how}"


def _names(nodes: Sequence[RolloutNode]) -> str:
    names = [node.member.node_name for node in nodes]
    return (
        ", ".join(names)
        if len(names) <= MAX_NAMES
        else f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more"
    )
