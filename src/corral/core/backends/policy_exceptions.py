"""Policy exceptions: matching nodes to which a policy does not apply, due to a newer request or for want of a build."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from corral.core.backends.conflicts import names_in
from corral.core.backends.desired import Desired, PolicyPreviews, find_all_desired, find_conflict, find_desired
from corral.core.backends.intents import Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Ensure, Policy, policy_for
from corral.core.backends.variants import Unfit
from corral.core.nodes.labels import matches
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import takes_backends


class ExceptionCause(StrEnum):
    DELETED = "deleted"
    INSTALLED = "installed"
    CANCELLED = "cancelled"
    """The policy's own intent was cancelled; nothing happens until it is requested again."""
    NO_BUILD = "no_build"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyException:
    node_id: NodeId
    node_name: str
    cause: ExceptionCause
    backend: str
    """The name that was deleted or installed: a family, or one build."""
    verb: Verb | None = None
    """Of the cancelled intent."""
    done: bool = True
    """Whether the newer intent has succeeded."""
    operation_id: str = ""
    """The operation that requested it."""
    ended_at: int | None = None
    """When it was cancelled."""
    reason: str = ""


def find_exceptions(
    states: Iterable[NodeBackends], policies: Sequence[Policy], previews: PolicyPreviews
) -> dict[str, list[PolicyException]]:
    """By policy, sorted by the nodes' names."""
    found: dict[str, list[PolicyException]] = {}
    for state in sorted(states, key=lambda state: state.node.name):
        matching = [one for one in policies if takes_backends(state.node) and matches(state.node, one.selector)]
        all_desired = find_all_desired(state, policies, previews) if matching else {}
        for policy in matching:
            exception = _find_exception(policy, state, policies, previews, all_desired)
            if exception is not None:
                found.setdefault(policy.id, []).append(exception)
    return found


def _find_exception(
    policy: Policy,
    state: NodeBackends,
    policies: Sequence[Policy],
    previews: PolicyPreviews,
    all_desired: Mapping[str, Desired],
) -> PolicyException | None:
    present = policy.ensure is Ensure.PRESENT
    if present and any(one.verb.ensures_presence and policy.backend in one.names for one in all_desired.values()):
        return None
    desired = find_desired(state, policy.backend, policies, previews)
    if desired is None:
        return _why_nothing(policy, state, policies, previews, all_desired)
    if desired.verb.ensures_presence is not present:
        return _because_of(policy.backend, desired, state, policies)
    if policy.backend in all_desired:
        return None
    conflict = find_conflict(all_desired, desired.verb, desired.names, desired.generation)
    return _because_of(conflict, all_desired[conflict], state, policies) if conflict is not None else None


def _why_nothing(
    policy: Policy,
    state: NodeBackends,
    policies: Sequence[Policy],
    previews: PolicyPreviews,
    all_desired: Mapping[str, Desired],
) -> PolicyException | None:
    """Why nothing is desired of the node under the policy's own name."""
    node, last = state.node, state.newest.get(policy.backend)
    preview = previews.get((policy.backend, node.id))
    if isinstance(preview, Unfit):
        return PolicyException(
            node_id=node.id,
            node_name=node.name,
            cause=ExceptionCause.NO_BUILD,
            backend=policy.backend,
            reason=preview.reason,
        )
    if last is None:
        return None
    conflict = find_conflict(all_desired, last.verb, names_in(last.backend, last.spec), last.generation)
    if conflict is not None:
        return _because_of(conflict, all_desired[conflict], state, policies)
    return PolicyException(
        node_id=node.id,
        node_name=node.name,
        cause=ExceptionCause.CANCELLED,
        backend=policy.backend,
        verb=last.verb,
        done=False,
        operation_id=last.operation_id,
        ended_at=last.finished_at,
        reason=last.last_error,
    )


def _because_of(backend: str, desired: Desired, state: NodeBackends, policies: Sequence[Policy]) -> PolicyException:
    requested = policy_for(state.node, backend, policies) if desired.by_policy else desired.intent
    return PolicyException(
        node_id=state.node.id,
        node_name=state.node.name,
        cause=ExceptionCause.INSTALLED if desired.verb.ensures_presence else ExceptionCause.DELETED,
        backend=backend,
        done=not isinstance(requested, Intent) or requested.state is IntentState.SUCCEEDED,
        operation_id=requested.operation_id if requested is not None else "",
    )
