"""`/api/status`, `/api/events`, `/api/join-command`, `/healthz`, `/readyz`."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from corral import __version__
from corral.core.errors import CorralError
from corral.core.nodes.node import NodeState
from corral.frontend.auth.join_tokens import JoinTokens
from corral.frontend.http.event_feed import LiveFeed
from corral.settings.roles import FrontendSettings
from corral.settings.values import is_loopback_host, redact_url
from corral.store.nodes.frontends import FRONTEND_LIVE_WITHIN_S
from corral.store.nodes.nodes import open_claims
from corral.store.stores import Stores


class Link(Protocol):
    @property
    def connected(self) -> bool: ...

    @property
    def last_problem(self) -> str: ...


@dataclass(slots=True)
class FrontendInfo:
    """This frontend."""

    id: str
    settings: FrontendSettings
    bus: Link
    url: str
    """Under which others reach it, as far as it knows."""
    program: str = "corral"
    """How whoever started it calls the program; machines that join have it where this one has it."""
    store_problem: str = ""
    """Why the last write failed: a store that only answers questions is not enough to be ready."""


class StoreStatus(BaseModel):
    kind: str
    location: str
    ok: bool
    problem: str
    """Why it takes no changes; empty when it does."""


class BusStatus(BaseModel):
    url: str
    connected: bool
    problem: str


class FrontendStatus(BaseModel):
    id: str
    url: str
    version: str
    age_s: float


class StatusView(BaseModel):
    version: str
    frontend_id: str
    frontends: list[FrontendStatus]
    store: StoreStatus
    bus: BusStatus
    nodes: dict[NodeState, int]
    claimed: Annotated[list[str], Field(description="Nodes whose name another machine claims; a person has to decide.")]


class JoinCommand(BaseModel):
    url: str
    token: str
    command: str


def status_routes(me: FrontendInfo, stores: Stores, feed: LiveFeed, tokens: JoinTokens) -> APIRouter:
    router = APIRouter(tags=["status"])

    @router.get("/api/status")
    async def show_status() -> StatusView:
        nodes = await stores.nodes.read_all()
        counts = Counter(node.state for node in nodes)
        live = await stores.frontends.read_live(within_s=FRONTEND_LIVE_WITHIN_S)
        return StatusView(
            version=__version__,
            frontend_id=me.id,
            frontends=[FrontendStatus(id=row.id, url=row.url, version=row.version, age_s=row.age_s) for row in live],
            store=StoreStatus(
                kind=stores.database.dialect,
                location=stores.database.location,
                ok=not me.store_problem,
                problem=me.store_problem,
            ),
            bus=BusStatus(url=redact_url(me.settings.bus), connected=me.bus.connected, problem=me.bus.last_problem),
            nodes={state: counts[state] for state in NodeState},
            claimed=sorted(node.name for node in nodes if open_claims(node)),
        )

    @router.get("/api/join-command")
    async def show_join_command(request: Request) -> JoinCommand:
        # As the caller reached us, which others can as well; but not by a name that is every machine's own.
        here = me.settings.public_url is not None or is_loopback_host(request.url.hostname or "")
        url = me.url if here else str(request.base_url).rstrip("/")
        return JoinCommand(url=url, token=tokens.own, command=f"{me.program} worker --join {url} --token {tokens.own}")

    @router.get("/api/events", response_class=StreamingResponse)
    async def follow_events(
        last_event_id: Annotated[str | None, Header()] = None, kinds: str = ""
    ) -> StreamingResponse:
        """Server-sent events; resumes from the header Last-Event-ID. `kinds`: only these, separated by commas."""
        since_ms = int(last_event_id) if last_event_id and re.fullmatch("[0-9]{1,15}", last_event_id) else None
        wanted = feed.choose([name for name in kinds.split(",") if name])
        events = feed.follow(since_ms, wanted)
        begun = await anext(events)  # before the headers: who sees the line open may rely on it
        return StreamingResponse(
            _prepend(begun, events), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @router.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
    async def alive() -> Response:
        return Response("ok")

    @router.api_route("/readyz", methods=["GET", "HEAD"], include_in_schema=False)
    async def ready() -> Response:
        reason = ""
        if not me.bus.connected:
            reason = "not connected to the message bus"
        try:
            await stores.nodes.now_ms()
        except CorralError:
            reason = "the store does not answer"
        if me.store_problem:
            reason = f"the store takes no changes: {me.store_problem}"
        if reason:
            return JSONResponse({"status": "starting", "reason": reason}, status_code=503)
        return Response("ok")

    return router


async def _prepend(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part
