"""`/api/keys`, `/api/session`, `/api/audit`: API keys, browser sessions and the audit log."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from corral.core.access.key_limits import KeyLimits
from corral.core.durations import parse_duration_s
from corral.core.errors import Forbidden, InvalidInput, NotFound, Unauthenticated
from corral.frontend.api.access.limits import LimitsInForceView, LimitsView
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.times import time_of
from corral.frontend.auth.rules import SESSION_COOKIE, Authorizer
from corral.frontend.http.middleware import client_address
from corral.store.access.api_keys import KEEP, ApiKey, Scope, hash_secret
from corral.store.stores import Stores
from corral.system import Ids

SESSION_TTL_S = 12 * 3600.0
KEY_PREFIX = "corral-"
KEYS = "keys"
SIGNED_IN_COOKIE = "corral_signed_in"
"""Readable by the page, unlike the session cookie: with it the page starts its requests without delay."""
ID_LENGTH = 36
UNKNOWN_KEY = "the API key is unknown or revoked"


AllowList = Annotated[list[str] | None, Field(max_length=1000)]


class KeyView(BaseModel):
    id: str
    name: str
    scope: Scope
    hint: str
    created_at: datetime
    created_by: str
    revoked_at: datetime | None
    models: list[str] | None
    """The models that the key may use; null for all."""
    limits: LimitsView
    """Of the key itself."""
    in_force: LimitsInForceView
    """With the defaults for what the key has no limit of its own for."""
    expires_at: datetime | None
    """Null: never."""


class NewKey(BaseModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]
    scope: Scope = Scope.USER
    models: AllowList = None
    limits: LimitsView = LimitsView()
    expires_at: AwareDatetime | None = None


class KeyChange(BaseModel):
    """Fields that are absent stay as they are."""

    models: AllowList = None
    limits: LimitsView = LimitsView()
    """Limits that are absent stay as they are."""
    expires_at: AwareDatetime | None = None


class KeyModels(BaseModel):
    models: AllowList


class CreatedKey(KeyView):
    key: str
    """The secret, shown only once; the store has only its hash."""


class SignIn(BaseModel):
    api_key: str


class SessionView(BaseModel):
    name: str
    scope: Scope


class AuditEntry(BaseModel):
    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    names: dict[str, str]
    """Names of the nodes whose ids are in the subject or the detail, including removed nodes."""


def _view(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "hint": key.hint,
        "created_at": time_of(key.created_at),
        "created_by": key.created_by,
        "revoked_at": time_of(key.revoked_at or None),
        "models": None if key.models is None else list(key.models),
        "limits": LimitsView.of(key.limits),
        "in_force": LimitsInForceView.of(key.in_force),
        "expires_at": time_of(key.expires_at),
    }


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def new_api_key(ids: Ids) -> str:
    return KEY_PREFIX + ids.token()


async def _resolve_names(stores: Stores, names: list[str] | None) -> list[str] | None:
    """Names of routes, and the models' own names. An unknown name is rejected now, not at the first use of the key."""
    if not names:
        return names
    routes = {one.route.name for one in await stores.public_routes.read_all()}
    resolved = []
    for name in names:
        if name in routes:  # also where it is an alias: requests with this name take the route
            resolved.append(name)
            continue
        try:
            model = await stores.models.read(name)
        except NotFound as error:
            raise InvalidInput(str(error)) from error
        resolved.append(model.alias_of or model.name)
    return resolved


def key_routes(stores: Stores, authorizer: Authorizer, ids: Ids, notify: Callable[[str], Awaitable[None]]) -> APIRouter:
    """`notify` tells all frontends that rows of a kind changed."""
    router = APIRouter(prefix="/api/keys", tags=["access"])

    @router.get("")
    async def list_keys() -> list[KeyView]:
        """Lists all API keys, including revoked ones."""
        return [KeyView(**_view(key)) for key in await stores.access.read_keys()]

    @router.post("", status_code=201)
    async def create_key(body: NewKey, actor: Actor) -> CreatedKey:
        """Creates an API key. Only this answer contains its secret."""
        models = await _resolve_names(stores, body.models)
        secret = new_api_key(ids)
        key = await stores.access.add_key(
            id=ids.uuid(),
            name=body.name,
            scope=body.scope,
            key=secret,
            actor=actor,
            models=models,
            limits=KeyLimits(**body.limits.given()),
            expires_at=_ms(body.expires_at),
            other_name=True,
        )
        authorizer.forget()
        return CreatedKey(**_view(key), key=secret)

    @router.put("/{id_or_name}/models")
    async def change_key_models(id_or_name: str, body: KeyModels, actor: Actor) -> KeyView:
        """Sets the models and routes that a key may use; `null` for all. Every frontend applies it within five
        seconds."""
        models = await _resolve_names(stores, body.models)
        key = await stores.access.set_key_models(id_or_name, models, actor=actor)
        authorizer.note_changed(key)
        await notify(KEYS)
        return KeyView(**_view(key))

    @router.patch("/{id_or_name}")
    async def edit_key(id_or_name: str, body: KeyChange, actor: Actor) -> KeyView:
        """Changes limits, expiry date or models of a key. Every frontend applies it within five seconds."""
        given = body.model_fields_set
        key = await stores.access.edit_key(
            id_or_name,
            limits=body.limits.given(),
            expires_at=_ms(body.expires_at) if "expires_at" in given else KEEP,
            models=await _resolve_names(stores, body.models) if "models" in given else KEEP,
            actor=actor,
        )
        authorizer.note_changed(key)
        await notify(KEYS)
        return KeyView(**_view(key))

    @router.delete("/{id_or_name}")
    async def revoke_key(id_or_name: str, actor: Actor) -> KeyView:
        """Revokes a key. This frontend rejects it from the answer on, the others within five seconds, and one that has
        lost the store and the message bus within a minute."""
        key = await stores.access.revoke_key(id_or_name, actor=actor)
        authorizer.note_changed(key)
        await notify(KEYS)
        return KeyView(**_view(key))

    return router


def session_routes(stores: Stores, authorizer: Authorizer, ids: Ids) -> APIRouter:
    """A browser exchanges its key for an HTTP-only cookie, which scripts cannot read."""
    router = APIRouter(prefix="/api/session", tags=["access"])

    @router.post("")
    async def sign_in(body: SignIn, request: Request, response: Response) -> SessionView:
        """Exchanges an admin key for a session cookie."""
        principal = await authorizer.identify(
            {"authorization": f"Bearer {body.api_key}"}, {}, client_address(request.scope)
        )
        if principal is None:
            raise Unauthenticated(UNKNOWN_KEY)
        if principal.scope is not Scope.ADMIN:
            raise Forbidden(
                f"signing in needs an admin key; the key {principal.name!r} has the scope {principal.scope}."
                " Use it with client programs and `corral chat`."
            )
        if principal.key_id is not None:
            token = ids.token()
            await stores.access.open_session(principal.key_id, token, ttl_s=SESSION_TTL_S)
            authorizer.forget()
            for name, value in ((SIGNED_IN_COOKIE, "yes"), (SESSION_COOKIE, token)):
                response.set_cookie(
                    name,
                    value,
                    max_age=int(SESSION_TTL_S),
                    httponly=name == SESSION_COOKIE,
                    samesite="strict",
                    secure=request.url.scheme == "https",
                )
        return SessionView(name=principal.name, scope=principal.scope)

    @router.get("")
    async def show_session(request: Request, response: Response) -> SessionView | None:
        """Shows the session; null when the browser is not signed in. An unknown key is rejected."""
        principal = await authorizer.identify(dict(request.headers), request.cookies, client_address(request.scope))
        if principal is not None:
            return SessionView(name=principal.name, scope=principal.scope)
        if "authorization" in request.headers:
            raise Unauthenticated(UNKNOWN_KEY)
        _delete_cookies(request, response)
        return None

    @router.delete("", status_code=204)
    async def sign_out(request: Request) -> Response:
        """Ends the browser session."""
        token = request.cookies.get(SESSION_COOKIE)
        if token:
            await stores.access.close_session(hash_secret(token))
            authorizer.forget()
        response = Response(status_code=204)
        _delete_cookies(request, response)
        return response

    return router


def _delete_cookies(request: Request, response: Response) -> None:
    for name in (SIGNED_IN_COOKIE, SESSION_COOKIE):
        if name in request.cookies:
            response.delete_cookie(name)


def _read_since(text: str, *, now_ms: int) -> int:
    try:
        return now_ms - int(parse_duration_s(text) * 1000)
    except (ValueError, OverflowError):
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"since: {text!r} is neither an age such as 2h nor a time such as 2030-01-31T12:00:00Z"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each)


def audit_routes(stores: Stores) -> APIRouter:
    router = APIRouter(prefix="/api/audit", tags=["access"])

    @router.get("")
    async def list_audit(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[int | None, Query(ge=1)] = None,
        since: Annotated[str | None, Query(max_length=64)] = None,
    ) -> list[AuditEntry]:
        """Lists audit entries, newest first. `before` is the id of the last entry of the previous page; `since` is an
        age (`2h`) or a time."""
        since_ms = _read_since(since, now_ms=await stores.nodes.now_ms()) if since else None
        events = await stores.events.read_latest(limit=limit, before=before, since_ms=since_ms)
        mentioned = {event.id: {event.subject, *_texts_in(event.detail)} for event in events}
        names = await stores.nodes.read_names(
            text for texts in mentioned.values() for text in texts if len(text) == ID_LENGTH
        )
        return [
            AuditEntry(
                id=event.id,
                at=time_of(event.at),
                actor=event.actor,
                action=event.action,
                subject=event.subject,
                detail=dict(event.detail),
                names={text: names[text] for text in sorted(mentioned[event.id] & names.keys())},
            )
            for event in events
        ]

    return router
