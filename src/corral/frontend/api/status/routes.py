"""`/api/status`, `/api/events`, `/api/join-command`, `/healthz`, `/readyz`."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from corral import __version__
from corral.bus.client import Bus
from corral.core.errors import CorralError
from corral.core.nodes.node import NodeState
from corral.frontend.auth.bus_credentials import announced_bus
from corral.frontend.auth.join_tokens import JoinTokens
from corral.frontend.http.event_feed import LiveFeed
from corral.settings.roles import FrontendSettings
from corral.settings.values import is_loopback_host, redact_url
from corral.store.nodes.frontends import FRONTEND_LIVE_WITHIN_S
from corral.store.nodes.nodes import open_claims
from corral.store.stores import Stores


@dataclass(slots=True)
class FrontendInfo:
    """Facts about this frontend."""

    id: str
    settings: FrontendSettings
    bus: Bus
    url: str
    """The address at which others reach it, as far as it knows."""
    program: str = "corral"
    """The program's name as it was started, for the join command."""
    store_problem: str = ""
    is_stopping: bool = False
    """Why the last write failed; a read-only store is not enough to be ready."""


class StoreStatus(BaseModel):
    kind: str
    location: str
    ok: bool
    problem: str
    """Why the store is read-only; empty when it takes changes."""


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
    claimed: Annotated[
        list[str], Field(description="Nodes whose name another machine claims, for an administrator to decide.")
    ]


class JoinCommand(BaseModel):
    url: str
    token: str
    command: str
    localai_command: Annotated[str, Field(description="The command that adds the machine with a LocalAI worker.")]


def status_routes(info: FrontendInfo, stores: Stores, feed: LiveFeed, tokens: JoinTokens) -> APIRouter:
    router = APIRouter(tags=["status"])

    @router.get("/api/status")
    async def show_status() -> StatusView:
        """Shows the frontends, the store, the message bus and the number of nodes in each state."""
        nodes = await stores.nodes.read_all()
        counts = Counter(node.state for node in nodes)
        live = await stores.frontends.read_live(within_s=FRONTEND_LIVE_WITHIN_S)
        return StatusView(
            version=__version__,
            frontend_id=info.id,
            frontends=[FrontendStatus(id=row.id, url=row.url, version=row.version, age_s=row.age_s) for row in live],
            store=StoreStatus(
                kind=stores.database.dialect,
                location=stores.database.location,
                ok=not info.store_problem,
                problem=info.store_problem,
            ),
            bus=BusStatus(
                url=redact_url(info.settings.bus), connected=info.bus.connected, problem=info.bus.last_problem
            ),
            nodes={state: counts[state] for state in NodeState},
            claimed=sorted(node.name for node in nodes if open_claims(node)),
        )

    @router.get("/api/join-command")
    async def show_join_command(request: Request) -> JoinCommand:
        """Shows the command that adds a machine to the cluster."""
        # The address the client used works for others too, unless it is a loopback address.
        here = info.settings.public_url is not None or is_loopback_host(request.url.hostname or "")
        url = info.url if here else str(request.base_url).rstrip("/")
        bus = announced_bus(info.settings, urlsplit(url).hostname)
        # Without --nats-require-auth, a LocalAI worker does not wait for its approval and ends.
        auth = "" if info.settings.bus_account_seed is None else " --nats-require-auth"
        return JoinCommand(
            url=url,
            token=tokens.own,
            command=f"{info.program} worker --join {url} --token {tokens.own}",
            localai_command=(
                f"local-ai worker --register-to {url} --nats-url {bus} --registration-token {tokens.own}{auth}"
            ),
        )

    @router.get("/api/events", response_class=StreamingResponse)
    async def follow_events(
        last_event_id: Annotated[str | None, Header()] = None, kinds: str = ""
    ) -> StreamingResponse:
        """Sends changes as server-sent events; resumes from the header Last-Event-ID. `kinds`: only these kinds,
        separated by commas."""
        since_ms = int(last_event_id) if last_event_id and re.fullmatch("[0-9]{1,15}", last_event_id) else None
        events = feed.follow(since_ms, feed.choose([name for name in kinds.split(",") if name]))
        first = await anext(events)  # before the headers: from then on the client misses no change
        return StreamingResponse(
            _prepend(first, events), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @router.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
    async def alive() -> Response:
        return Response("ok")

    @router.api_route("/readyz", methods=["GET", "HEAD"], include_in_schema=False)
    async def ready() -> Response:
        reason = ""
        if not info.bus.connected:
            reason = "not connected to the message bus"
        try:
            await stores.nodes.now_ms()
        except CorralError:
            reason = "the store is not reachable"
        if info.store_problem:
            reason = f"the store is read-only: {info.store_problem}"
        if info.is_stopping:
            return JSONResponse({"status": "stopping", "reason": "this frontend is stopping"}, status_code=503)
        if reason:
            return JSONResponse({"status": "starting", "reason": reason}, status_code=503)
        return Response("ok")

    return router


async def _prepend(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part
