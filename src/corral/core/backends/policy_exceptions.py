"""Machines that a policy is for and does not hold on: something else was asked for there since, or nothing fits."""

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
    CALLED_OFF = "called_off"
    """What the policy itself would order; nothing is done for it before somebody asks again."""
    NO_BUILD = "no_build"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyException:
    node_id: NodeId
    node_name: str
    cause: ExceptionCause
    backend: str
    """As it was deleted or installed: a family, or one build."""
    verb: Verb | None = None
    """Of the order that was called off."""
    done: bool = True
    """What was asked for was also carried out."""
    operation_id: str = ""
    """By which it was asked for."""
    ended_at: int | None = None
    """When that was called off."""
    reason: str = ""


def find_exceptions(
    states: Iterable[NodeBackends], policies: Sequence[Policy], prospects: PolicyPreviews
) -> dict[str, list[PolicyException]]:
    """By policy, in the order of the nodes' names."""
    found: dict[str, list[PolicyException]] = {}
    for state in sorted(states, key=lambda state: state.node.name):
        fitting = [one for one in policies if takes_backends(state.node) and matches(state.node, one.selector)]
        wants = find_all_desired(state, policies, prospects) if fitting else {}
        for policy in fitting:
            exception = _find_exception(policy, state, policies, prospects, wants)
            if exception is not None:
                found.setdefault(policy.id, []).append(exception)
    return found


def _find_exception(
    policy: Policy,
    state: NodeBackends,
    policies: Sequence[Policy],
    prospects: PolicyPreviews,
    wants: Mapping[str, Desired],
) -> PolicyException | None:
    present = policy.ensure is Ensure.PRESENT
    if present and any(one.verb.ensures_presence and policy.backend in one.names for one in wants.values()):
        return None
    wanted = find_desired(state, policy.backend, policies, prospects)
    if wanted is None:
        return _why_nothing(policy, state, policies, prospects, wants)
    if wanted.verb.ensures_presence is not present:
        return _because_of(policy.backend, wanted, state, policies)
    rival = None if policy.backend in wants else find_conflict(wants, wanted.verb, wanted.names, wanted.generation)
    return _because_of(rival, wants[rival], state, policies) if rival is not None else None


def _why_nothing(
    policy: Policy,
    state: NodeBackends,
    policies: Sequence[Policy],
    prospects: PolicyPreviews,
    wants: Mapping[str, Desired],
) -> PolicyException | None:
    """Under the policy's own name nothing is wanted of the node."""
    node, last = state.node, state.newest.get(policy.backend)
    prospect = prospects.get((policy.backend, node.id))
    if isinstance(prospect, Unfit):
        return PolicyException(
            node_id=node.id,
            node_name=node.name,
            cause=ExceptionCause.NO_BUILD,
            backend=policy.backend,
            reason=prospect.reason,
        )
    if last is None:
        return None
    rival = find_conflict(wants, last.verb, names_in(last.backend, last.spec), last.generation)
    if rival is not None:
        return _because_of(rival, wants[rival], state, policies)
    return PolicyException(
        node_id=node.id,
        node_name=node.name,
        cause=ExceptionCause.CALLED_OFF,
        backend=policy.backend,
        verb=last.verb,
        done=False,
        operation_id=last.operation_id,
        ended_at=last.finished_at,
        reason=last.last_error,
    )


def _because_of(backend: str, wanted: Desired, state: NodeBackends, policies: Sequence[Policy]) -> PolicyException:
    asked = policy_for(state.node, backend, policies) if wanted.by_policy else wanted.intent
    return PolicyException(
        node_id=state.node.id,
        node_name=state.node.name,
        cause=ExceptionCause.INSTALLED if wanted.verb.ensures_presence else ExceptionCause.DELETED,
        backend=backend,
        done=not isinstance(asked, Intent) or asked.state is IntentState.SUCCEEDED,
        operation_id=asked.operation_id if asked is not None else "",
    )
