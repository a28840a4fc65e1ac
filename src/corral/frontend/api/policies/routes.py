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
from corral.core.backends.version_holds import VersionHold
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.backends.listing import Exceptions, FleetListing
from corral.frontend.api.message import Message
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
class HeldVersionView:
    """The version that nodes get after a rollback of the fleet, also those that join later, until an upgrade is
    requested."""

    variant: str
    version: str
    digest: str
    operation_id: str


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
    rolled_back_to: list[HeldVersionView]


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
    on_drift: OnDrift


def policy_routes(stores: Stores, listing: FleetListing, notify: Callable[[str], Awaitable[None]]) -> APIRouter:
    router = APIRouter(tags=["backends"])

    async def show(*policies: Policy) -> list[PolicyView]:
        exceptions, holds = await listing.read_exceptions(), await stores.version_holds.read_all()
        return [_policy(policy, exceptions.get(policy.id, Exceptions()), holds) for policy in policies]

    @router.get("/api/policies", response_model=list[PolicyView])
    async def list_policies() -> Response:
        """Lists the policies: which backends must be installed, or must not, on every node that a selector matches,
        also on nodes that join later; and the nodes that are exempt because something else was requested for them."""
        return MsgspecJson(await show(*await stores.policies.read_all()))

    @router.patch("/api/policies/{policy_id}", response_model=PolicyView)
    async def change_policy(policy_id: str, body: PolicyBody, actor: Actor) -> Response:
        """Changes what the policy does about drift."""
        policy = await stores.policies.set_on_drift(policy_id, body.on_drift, actor=actor)
        await notify("backends")
        return MsgspecJson((await show(policy))[0])

    @router.delete("/api/policies/{policy_id}")
    async def end_policy(policy_id: str, actor: Actor) -> Message:
        """Removes a policy. This installs and deletes nothing."""
        await stores.policies.end(policy_id, actor=actor)
        await notify("backends")
        return Message(message="policy removed")

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


def _policy(policy: Policy, exceptions: Exceptions, holds: Sequence[VersionHold]) -> PolicyView:
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
        rolled_back_to=[
            HeldVersionView(
                variant=hold.spec.build.name,
                version=hold.spec.build.version,
                digest=hold.spec.build.digest,
                operation_id=hold.operation_id,
            )
            for hold in holds
            if hold.backend == policy.backend and hold.selector in ({}, policy.selector)
        ],
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
