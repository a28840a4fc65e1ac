"""What a new operation means for rollouts that have not ended on its nodes.

The same version again is refused: it would take nodes out of the rollout that judges it. Another version takes its
nodes over, with the versions that the earlier rollout would have brought back: nobody has judged the one in between."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from corral.core.backends.operations import NewIntent
from corral.core.backends.rollouts import (
    Rollout,
    RolloutMember,
    RolloutNode,
    RolloutPlan,
    RolloutState,
    VersionChange,
    list_names,
    short_id,
)
from corral.core.errors import Conflict
from corral.core.nodes.node import NodeId


def refuse_same_version(intents: Sequence[NewIntent], rollouts: Iterable[Rollout]) -> None:
    """Raises Conflict if one of the intents brings the version of a rollout that has not ended to a node of it."""
    for rollout in rollouts:
        if rollout.ended_at is not None:
            continue
        same = [
            (intent, change)
            for intent, node in _matches(intents, rollout)
            if _concerns(rollout, node) and (change := _find_change(rollout, intent)) is not None
        ]
        if same:
            names = [intent.node_name for intent, _ in same]
            raise Conflict(_describe(rollout, same[0][1], names))


def take_over(plan: RolloutPlan, intents: Sequence[NewIntent], rollouts: Iterable[Rollout]) -> RolloutPlan:
    """The plan, in which nodes that an earlier rollout has reached go back to the version before that rollout.
    `rollouts`: those with nodes that they may have changed and that are not back yet; oldest first."""
    if not plan.is_gated:
        return plan
    inherited: dict[NodeId, RolloutMember] = {}
    changes: list[VersionChange] = []
    for rollout in rollouts:
        for intent, node in _matches(intents, rollout):
            member = node.member
            if _was_reached(rollout, node) and member.previous_digest != intent.spec.build.digest:
                inherited[member.node_id] = replace(member, inherited=True)
                changes += rollout.builds
    if not inherited:
        return plan
    waves = [tuple(_inherit(one, inherited) for one in wave) for wave in plan.waves]
    planned = {one.node_id for wave in waves for one in wave}
    waves[-1] += tuple(member for node_id, member in sorted(inherited.items()) if node_id not in planned)
    return replace(plan, waves=tuple(waves), builds=tuple(_before(change, changes) for change in plan.builds))


def _matches(intents: Sequence[NewIntent], rollout: Rollout) -> Iterator[tuple[NewIntent, RolloutNode]]:
    nodes = {(node.member.node_id, node.backend): node for node in rollout.nodes}
    for intent in intents:
        node = nodes.get((intent.node_id, intent.backend))
        if node is not None:
            yield intent, node


def _concerns(rollout: Rollout, node: RolloutNode) -> bool:
    if rollout.state is RolloutState.ROLLING_BACK:
        return _was_reached(rollout, node)
    return not node.has_left


def _was_reached(rollout: Rollout, node: RolloutNode) -> bool:
    """Whether the node may still have the version of this rollout."""
    if node.rollback is not None:
        return node.rollback.live
    return rollout.ended_at is None and node.needs_rollback


def _find_change(rollout: Rollout, intent: NewIntent) -> VersionChange | None:
    build = intent.spec.build
    return next(
        (one for one in rollout.builds if one.is_to(build.name, digest=build.digest, version=build.version)), None
    )


def _inherit(member: RolloutMember, inherited: dict[NodeId, RolloutMember]) -> RolloutMember:
    earlier = inherited.get(member.node_id)
    if earlier is None:
        return member
    return replace(
        member,
        build=earlier.build,
        previous_version=earlier.previous_version,
        previous_digest=earlier.previous_digest,
        inherited=True,
    )


def _before(change: VersionChange, earlier: Sequence[VersionChange]) -> VersionChange:
    """The change from the version before an earlier rollout, where it would begin at the version of that one."""
    digest = change.previous.build.digest
    found = next((one for one in earlier if one.build == change.build and one.digest == digest), None)
    return change if found is None else replace(change, previous=found.previous)


def _describe(rollout: Rollout, change: VersionChange, names: Sequence[str]) -> str:
    key = short_id(rollout.operation_id)
    where = list_names(names)
    if rollout.state is RolloutState.ROLLING_BACK:
        return (
            f"rollout {key} is taking {change.label} back from {where}; `corral rollouts watch {key}` shows when that"
            " has ended"
        )
    return (
        f"rollout {key} is already bringing {change.label} to {where}; follow it with `corral rollouts watch {key}`, or"
        f" end it first with `corral rollouts abort {key}`"
    )
