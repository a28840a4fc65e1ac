"""`/api/policies` and `/api/intents`: the policies in force, and every intent."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from corral.core.backends.intents import Intent, IntentState, Verb
from corral.core.backends.policies import Ensure, OnDrift, Policy
from corral.core.backends.policy_exceptions import ExceptionCause, PolicyException
from corral.core.backends.rollouts import RolloutRequest
from corral.core.backends.version_pins import VersionPin
from corral.core.errors import InvalidInput
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.listing import Exceptions, FleetListing
from corral.frontend.api.message import Message
from corral.frontend.api.rollouts.request import RolloutBody, read_rollout
from corral.frontend.api.times import time_of
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionView:
    """A node that the policy selects and that is exempt from it."""

    node_id: str
    node_name: str
    cause: ExceptionCause
    backend: str
    """The backend that was deleted or installed there: a meta backend, or one build."""
    verb: str
    """The verb of the intent that was cancelled."""
    done: bool
    """Whether the requested change was also carried out."""
    by: str
    at: datetime | None
    operation_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedBuildView:
    variant: str
    version: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PinView:
    """A version that is desired on all nodes, on those that a selector matches, or on named ones."""

    id: str
    backend: str
    selector: Mapping[str, str]
    nodes: list[str]
    """Ids. Empty for all nodes, or those that the selector matches."""
    follows: bool
    """Whether these nodes follow the galleries, in spite of an older pin of more nodes."""
    version: str
    """Empty where the version is known by its digests only."""
    builds: list[PinnedBuildView]
    reason: str
    created_by: str
    created_at: datetime | None
    operation_id: str
    summary: str
    """For people: `pinned to 1.2 since ...`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    id: str
    backend: str
    selector: Mapping[str, str]
    ensure: Ensure
    on_drift: OnDrift
    uri: str
    generation: int
    operation_id: str
    created_by: str
    created_at: datetime | None
    exceptions: list[ExceptionView]
    """The first hundred, by name of the node."""
    exception_count: int
    rollout: RolloutRequest | None
    """How versions change on its nodes, where a command does not say it. None: by the settings."""
    pins: list[PinView]
    """Pins of this backend that may apply to its nodes, newest first. Without any, they follow the galleries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentView:
    id: str
    node_id: str
    backend: str
    verb: Verb
    state: IntentState
    generation: int
    operation_id: str
    variant: str
    digest: str
    attempts: int
    error: str
    due_at: datetime | None
    finished_at: datetime | None
    newest: bool


class PolicyBody(BaseModel):
    on_drift: OnDrift | None = None
    rollout: RolloutBody | None = None
    """How versions change on its nodes, where a command does not say it."""


def policy_routes(stores: Stores, listing: FleetListing, notify: Callable[[str], Awaitable[None]]) -> APIRouter:
    router = APIRouter(tags=["backends"])

    async def show(*policies: Policy) -> list[PolicyView]:
        exceptions, pins = await listing.read_exceptions(), await stores.version_pins.read_all()
        return [_policy(policy, exceptions.get(policy.id, Exceptions()), pins) for policy in policies]

    @router.get("/api/policies", response_model=list[PolicyView])
    async def list_policies() -> Response:
        """Lists the policies: which backends must be installed, or must not, on every node that a selector matches,
        also on nodes that join later; and the nodes that are exempt because something else was requested for them."""
        return MsgspecJson(await show(*await stores.policies.read_all()))

    @router.patch("/api/policies/{policy_id}", response_model=PolicyView)
    async def change_policy(policy_id: str, body: PolicyBody, actor: Actor) -> Response:
        """Changes what the policy does about drift, or how versions change on its nodes."""
        rollout = read_rollout(body.rollout)
        if rollout is None and body.on_drift is None:
            raise InvalidInput("nothing to change: give on_drift or rollout")
        if rollout is not None:
            policy = await stores.policies.set_rollout(policy_id, rollout, actor=actor)
        if body.on_drift is not None:
            policy = await stores.policies.set_on_drift(policy_id, body.on_drift, actor=actor)
        await notify("backends")
        return MsgspecJson((await show(policy))[0])

    @router.delete("/api/policies/{policy_id}")
    async def end_policy(policy_id: str, actor: Actor) -> Message:
        """Removes a policy. This installs and deletes nothing."""
        await stores.policies.end(policy_id, actor=actor)
        await notify("backends")
        return Message(message="policy removed")

    @router.get("/api/pins", response_model=list[PinView])
    async def list_pins() -> Response:
        """Lists the version pins in force, newest first: to which version, on which nodes, since when, by whom and
        why."""
        return MsgspecJson([_pin(pin) for pin in reversed(await stores.version_pins.read_all()) if _is_shown(pin)])

    @router.get("/api/intents", response_model=list[IntentView])
    async def list_intents(
        node_id: str | None = None,
        backend: str | None = None,
        state: IntentState | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> Response:
        """Lists intents, open and finished, newest first."""
        found = await stores.intents.read_some(node_id=node_id, backend=backend, state=state, limit=limit)
        return MsgspecJson([_intent(intent) for intent in found])

    return router


def _policy(policy: Policy, exceptions: Exceptions, pins: Sequence[VersionPin]) -> PolicyView:
    return PolicyView(
        id=policy.id,
        backend=policy.backend,
        selector=policy.selector,
        ensure=policy.ensure,
        on_drift=policy.on_drift,
        uri=policy.spec.uri,
        generation=policy.generation,
        operation_id=policy.operation_id,
        created_by=policy.created_by,
        created_at=time_of(policy.created_at),
        exceptions=[
            _exception(one, *exceptions.requested_by.get(one.operation_id, ("", None))) for one in exceptions.first
        ],
        exception_count=exceptions.count,
        rollout=policy.rollout,
        pins=[_pin(pin) for pin in reversed(pins) if pin.backend == policy.backend and _is_shown(pin)],
    )


def _is_shown(pin: VersionPin) -> bool:
    """Following on all nodes is the default."""
    return not pin.follows or bool(pin.target.nodes or pin.target.selector)


def _pin(pin: VersionPin) -> PinView:
    return PinView(
        id=pin.id,
        backend=pin.backend,
        selector=pin.target.selector,
        nodes=list(pin.target.nodes),
        follows=pin.follows,
        version=pin.version,
        builds=[
            PinnedBuildView(variant=spec.build.name, version=spec.build.version, digest=spec.build.digest)
            for spec in pin.specs
        ],
        reason=pin.reason,
        created_by=pin.created_by,
        created_at=time_of(pin.created_at),
        operation_id=pin.operation_id,
        summary="follows the galleries" if pin.follows else pin.describe(""),
    )


def _exception(one: PolicyException, requested_by: str, requested_at: int | None) -> ExceptionView:
    cancelled = one.cause is ExceptionCause.CANCELLED
    return ExceptionView(
        node_id=one.node_id,
        node_name=one.node_name,
        cause=one.cause,
        backend=one.backend,
        verb=one.verb.value if one.verb is not None else "",
        done=one.done,
        by="" if cancelled else requested_by,
        at=time_of(one.ended_at if cancelled else requested_at),
        operation_id=one.operation_id,
        reason=one.reason,
    )


def _intent(intent: Intent) -> IntentView:
    return IntentView(
        id=intent.id,
        node_id=intent.node_id,
        backend=intent.backend,
        verb=intent.verb,
        state=intent.state,
        generation=intent.generation,
        operation_id=intent.operation_id,
        variant=intent.spec.build.name,
        digest=intent.spec.build.digest,
        attempts=intent.attempts,
        error=intent.last_error,
        due_at=time_of(intent.due_at) if intent.state.live else None,
        finished_at=time_of(intent.finished_at),
        newest=intent.newest,
    )
