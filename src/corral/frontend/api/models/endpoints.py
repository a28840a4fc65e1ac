"""`/api/models/{name}/endpoints`: servers that already run, attached to a model. Their keys are never shown."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from corral.controller.replicas.attached_endpoints import probe_endpoint
from corral.core.errors import NotFound
from corral.core.models.config import check_model_name
from corral.core.replicas.attached import (
    CA_MAX_CHARS,
    KEY_MAX_CHARS,
    LIMIT_DEFAULT,
    LIMIT_MAX,
    MODEL_MAX_CHARS,
    SETTINGS,
    URL_MAX_CHARS,
    WEIGHT_DEFAULT,
    WEIGHT_MAX,
    AttachedEndpoint,
    EndpointHealth,
    EndpointState,
    ServerTrust,
    UpstreamProtocol,
    check_abilities,
    check_api_key,
    check_not_own,
    check_paths,
    check_pin,
    check_trust,
    find_attached,
    keep_settings,
    parse_server_url,
    warn_of_models,
)
from corral.core.replicas.routing import ReplicaId
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.times import time_of
from corral.frontend.gateway.in_flight import InFlight
from corral.store.stores import Stores
from corral.system import Ids
from corral.system.server_trust import check_ca

OWN_WITHIN_S = 300.0
"""A frontend that was seen so lately is one of this cluster's."""


class AttachRequest(BaseModel):
    """An endpoint that is attached already keeps what is left out; an empty text or list clears it."""

    model_config = ConfigDict(extra="forbid")
    url: Annotated[str, Field(min_length=1, max_length=URL_MAX_CHARS)]
    """The base of the server's API, for example `http://10.0.0.5:8000/v1`. Without a path, `/v1` is used."""
    upstream_model: Annotated[str, Field(max_length=MODEL_MAX_CHARS)] | None = None
    """The model's name at the server, if it differs. An endpoint that is attached already needs it only where
    the same URL is attached with several names."""
    api_key: Annotated[SecretStr, Field(max_length=KEY_MAX_CHARS)] | None = None
    """The key that the server requires."""
    protocol: UpstreamProtocol | None = None
    """The API that the server speaks; by default OpenAI's."""
    endpoints: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=16)] | None = None
    """Paths of client APIs that the server has itself, of `/v1/messages`, `/v1/messages/count_tokens` and
    `/v1/responses`: requests for them are relayed. Otherwise they are translated into chat completions."""
    continuation: Literal["", "assistant-prefill", "continue-final-message"] | None = None
    """How the server continues an answer that another one began: `assistant-prefill` (the last message, of the
    assistant, is continued, as llama.cpp does) or `continue-final-message` (the same, with vLLM's fields). Empty: it
    cannot."""
    ca_pem: Annotated[str, Field(max_length=CA_MAX_CHARS)] | None = None
    """Certificate authorities, in PEM form, that the server's certificate must come from."""
    pin: Annotated[str, Field(max_length=200)] | None = None
    """The SHA-256 of the server's certificate, as hexadecimal digits."""
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] | None = None
    """The most requests that may be open at it; by default 32."""
    weight: Annotated[int, Field(ge=1, le=WEIGHT_MAX)] | None = None
    """Its share of the requests, relative to the model's other endpoints and replicas, which have 1, as is the
    default."""

    def absent(self) -> frozenset[str]:
        """The settings that are left out."""
        given = {"capacity": self.limit}
        return frozenset(name for name in SETTINGS if given.get(name, getattr(self, name, None)) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointObject:
    id: str
    model: str
    url: str
    upstream_model: str
    protocol: UpstreamProtocol
    endpoints: list[str]
    """Paths of client APIs that it has itself, besides OpenAI's chat completions."""
    continuation: str
    """How it continues an answer that another replica began; empty if it cannot."""
    has_key: bool
    has_ca: bool
    pin: str
    limit: int
    weight: int
    state: EndpointState
    health: EndpointHealth
    """Unhealthy endpoints get no requests."""
    reason: str
    """Why it is unhealthy, or is being drained."""
    in_flight: int
    """Its open requests, on all frontends."""
    last_used: datetime | None
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachAnswer(EndpointObject):
    is_new: bool
    """Whether it was not attached before. Otherwise its settings were changed."""
    warnings: list[str]


def view_endpoint(one: AttachedEndpoint, in_flight: InFlight) -> EndpointObject:
    return EndpointObject(**_fields(one, in_flight))


def _fields(one: AttachedEndpoint, in_flight: InFlight) -> dict[str, Any]:
    return {
        "id": one.id,
        "model": one.model,
        "url": one.url,
        "upstream_model": one.upstream_model,
        "protocol": one.protocol,
        "endpoints": list(one.endpoints),
        "continuation": one.continuation,
        "has_key": bool(one.api_key),
        "has_ca": bool(one.trust.ca_pem),
        "pin": one.trust.pin,
        "limit": one.capacity,
        "weight": one.weight,
        "state": one.state,
        "health": one.health,
        "reason": one.reason,
        "in_flight": in_flight.total(ReplicaId(one.id)),
        "last_used": time_of(one.last_used) if one.last_used > one.created_at else None,
        "created_at": time_of(one.created_at),
        "created_by": one.created_by,
    }


def _read(name: str, body: AttachRequest, ids: Ids) -> AttachedEndpoint:
    """Raises InvalidInput."""
    check_model_name(name)
    trust = ServerTrust(ca_pem=(body.ca_pem or "").strip(), pin=check_pin(body.pin or ""))
    check_ca(trust.ca_pem)
    return AttachedEndpoint(
        id=ids.uuid(),
        model=name,
        url=parse_server_url(body.url).text,
        upstream_model=(body.upstream_model or "").strip(),
        protocol=body.protocol or UpstreamProtocol.OPENAI,
        endpoints=check_paths(body.endpoints or ()),
        continuation=body.continuation or "",
        api_key=check_api_key(body.api_key.get_secret_value()) if body.api_key is not None else "",
        trust=trust,
        capacity=body.limit or LIMIT_DEFAULT,
        weight=body.weight or WEIGHT_DEFAULT,
    )


def endpoint_routes(
    stores: Stores, in_flight: InFlight, ids: Ids, notify_routes: Callable[[], Awaitable[None]]
) -> APIRouter:
    """Goes before the routes of models, whose names may have slashes."""
    router = APIRouter(tags=["models"])
    endpoints = stores.attached_endpoints

    async def _read_known(name: str) -> list[AttachedEndpoint]:
        try:
            model = await stores.models.read(name)
        except NotFound:
            return []
        return await endpoints.read_of_model(model.name)

    @router.get("/api/endpoints")
    async def list_all_endpoints() -> list[EndpointObject]:
        """Lists the attached endpoints of all models."""
        return [view_endpoint(one, in_flight) for one in await endpoints.read_all()]

    @router.get("/api/models/{name:path}/endpoints")
    async def list_endpoints(name: str) -> list[EndpointObject]:
        """Lists the attached endpoints of a model."""
        model = await stores.models.read(name)
        return [view_endpoint(one, in_flight) for one in await endpoints.read_of_model(model.name)]

    @router.post("/api/models/{name:path}/endpoints", status_code=201, responses={200: {"model": AttachAnswer}})
    async def attach_endpoint(name: str, body: AttachRequest, actor: Actor, response: Response) -> AttachAnswer:
        """Attaches a server that already runs to a model, which is added if there is none of this name. The server is
        probed first; one that does not answer is attached all the same, and gets requests once it does. The same URL
        again changes the endpoint's settings, as far as they are given (200)."""
        given, absent = _read(name, body, ids), body.absent()
        given = keep_settings(given, find_attached(await _read_known(name), given, absent=absent), absent=absent)
        check_trust(given.server, given.trust)
        check_abilities(given)
        probe = await probe_endpoint(given)
        check_not_own(given, probe, [one.id for one in await stores.frontends.read_live(within_s=OWN_WITHIN_S)])
        health = EndpointHealth.HEALTHY if probe.is_well else EndpointHealth.UNHEALTHY
        stored, is_new = await endpoints.attach(
            replace(given, health=health, reason=probe.reason), actor=actor, absent=absent
        )
        await notify_routes()
        if not is_new:
            response.status_code = 200
        return AttachAnswer(**_fields(stored, in_flight), is_new=is_new, warnings=warn_of_models(stored, probe.models))

    @router.delete("/api/models/{name:path}/endpoints/{endpoint}")
    async def detach_endpoint(name: str, endpoint: str, actor: Actor) -> EndpointObject:
        """Detaches a server. It gets no new requests; those that are open are finished."""
        model = await stores.models.read(name)
        found = await endpoints.detach(model.name, endpoint, actor=actor)
        await notify_routes()
        return view_endpoint(found, in_flight)

    return router
