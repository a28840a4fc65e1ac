"""What an open rollout means for one node: in which wave it is, and what that waits for."""

from corral.core.backends.build import short_digest
from corral.core.backends.rollouts import Rollout, RolloutNode, RolloutState, Statuses, Wait, plan_step, short_id
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node


def describe_for_node(rollout: Rollout, node: Node, *, statuses: Statuses, now_ms: int) -> str:
    """For people; empty if the rollout is not about the node."""
    member = next((one for one in rollout.nodes if one.member.node_id == node.id), None)
    if member is None or member.has_left:
        return _without(rollout, node) if member is None else ""
    doing = f"{_change(rollout, member)} by rollout {short_id(rollout.operation_id)}"
    return f"{doing}: {_place(rollout, member, statuses, now_ms)}"


def describe_wait(rollout: Rollout, *, statuses: Statuses, now_ms: int) -> str:
    """What the whole rollout waits for now; by the verdicts that were saved last."""
    if rollout.state is RolloutState.ROLLING_BACK:
        return f"rolling back: {rollout.reason}"
    record = rollout.current
    verdicts = record.verdicts if record is not None else ()
    step = plan_step(rollout, statuses=statuses, verdicts=verdicts, now_ms=now_ms)
    return step.reason if isinstance(step, Wait) else "the next step is being taken"


def describe_install_wait(rollout: Rollout, *, statuses: Statuses, now_ms: int) -> str:
    """Which nodes the current wave waits for while it is being installed, and why; empty if it is not."""
    record = rollout.current
    is_watched = record is not None and record.soak_began_at is not None and any(node.is_done for node in rollout.nodes)
    if not rollout.is_gated or rollout.state is not RolloutState.RUNNING or record is None or is_watched:
        return ""
    step = plan_step(rollout, statuses=statuses, verdicts=(), now_ms=now_ms)
    return step.reason if isinstance(step, Wait) else ""


def _change(rollout: Rollout, node: RolloutNode) -> str:
    change = next((one for one in rollout.builds if one.build == node.member.build), None) or rollout.builds[0]
    return f"{node.member.previous_version or short_digest(node.member.previous_digest)} -> {change.label}"


def _place(rollout: Rollout, node: RolloutNode, statuses: Statuses, now_ms: int) -> str:
    wave = f"wave {node.wave + 1} of {rollout.wave_count}"
    waits = describe_wait(rollout, statuses=statuses, now_ms=now_ms)
    if rollout.state is RolloutState.ROLLING_BACK:
        before = node.member.previous_version or short_digest(node.member.previous_digest)
        return f"this node, in {wave}, goes back to {before} ({rollout.reason})" if node.began else f"ending; {waits}"
    if node.wave > rollout.wave:
        return f"this node is in {wave} and waits: {waits}"
    if node.is_done:
        return f"this node, in {wave}, has it; {waits}"
    return f"this node is in {wave}, which has begun; {node.error or waits}"


def _without(rollout: Rollout, node: Node) -> str:
    """A node that joined or got the backend after the rollout began gets the version before it."""
    target = rollout.target
    if not (node.id in target.nodes if target.nodes else matches(node, target.selector)):
        return ""
    return (
        f"rollout {short_id(rollout.operation_id)} is running without this node, which gets the previous version"
        " until it ends"
    )
