"""`/api/keys`, `/api/session`, `/api/audit`: who may do what, and who did what."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field, StringConstraints

from corral.core.durations import parse_duration_s
from corral.core.errors import Forbidden, InvalidInput, NotFound, Unauthenticated
from corral.frontend.api.access.principal import Actor
from corral.frontend.auth.rules import SESSION_COOKIE, Authorizer
from corral.frontend.http.middleware import client_address
from corral.store.access.api_keys import ApiKey, Scope, hash_secret
from corral.store.stores import Stores
from corral.system import Ids

SESSION_TTL_S = 12 * 3600.0
KEY_PREFIX = "corral-"
KEYS = "keys"
SIGNED_IN_COOKIE = "corral_signed_in"
"""Says to the page that there is a session, which it cannot see: it then asks for what it shows without delay."""
ID_LENGTH = 36


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
    """The models it may use; absent is all."""


class NewKey(BaseModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]
    scope: Scope = Scope.USER
    models: AllowList = None


class KeyModels(BaseModel):
    models: AllowList


class CreatedKey(KeyView):
    key: str
    """Shown this once; only its hash is kept."""


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
    """Of the nodes whose ids are in the subject or the detail, removed ones too."""


def _view(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "hint": key.hint,
        "created_at": datetime.fromtimestamp(key.created_at / 1000, UTC),
        "created_by": key.created_by,
        "revoked_at": datetime.fromtimestamp(key.revoked_at / 1000, UTC) if key.revoked_at else None,
        "models": None if key.models is None else list(key.models),
    }


def new_api_key(ids: Ids) -> str:
    return KEY_PREFIX + ids.token()


async def _own_names(stores: Stores, names: list[str] | None) -> list[str] | None:
    """Aliases become the names of their models. A name that means nothing is a mistake now, not at the first use."""
    if names is None:
        return None
    own = []
    for name in names:
        try:
            model = await stores.models.read(name)
        except NotFound as error:
            raise InvalidInput(str(error)) from error
        own.append(model.alias_of or model.name)
    return own


def key_routes(stores: Stores, gate: Authorizer, ids: Ids, hint: Callable[[str], Awaitable[None]]) -> APIRouter:
    """`hint`: tells all frontends that rows of a kind changed."""
    router = APIRouter(prefix="/api/keys", tags=["access"])

    @router.get("")
    async def list_keys() -> list[KeyView]:
        return [KeyView(**_view(key)) for key in await stores.access.read_keys()]

    @router.post("", status_code=201)
    async def create_key(wanted: NewKey, actor: Actor) -> CreatedKey:
        models = await _own_names(stores, wanted.models)
        secret = new_api_key(ids)
        key = await stores.access.add_key(
            id=ids.uuid(), name=wanted.name, scope=wanted.scope, key=secret, actor=actor, models=models, other_name=True
        )
        gate.forget()
        return CreatedKey(**_view(key), key=secret)

    @router.put("/{id_or_name}/models")
    async def change_key_models(id_or_name: str, wanted: KeyModels, actor: Actor) -> KeyView:
        """Which models the key may use; `null` is all. In force on every frontend within five seconds."""
        models = await _own_names(stores, wanted.models)
        key = await stores.access.set_key_models(id_or_name, models, actor=actor)
        gate.note_changed(key)
        await hint(KEYS)
        return KeyView(**_view(key))

    @router.delete("/{id_or_name}")
    async def revoke_key(id_or_name: str, actor: Actor) -> KeyView:
        """Refused by this frontend from the answer on, by every other within five seconds; within a minute by one that
        has lost the store and the message bus."""
        key = await stores.access.revoke_key(id_or_name, actor=actor)
        gate.note_changed(key)
        await hint(KEYS)
        return KeyView(**_view(key))

    return router


def session_routes(stores: Stores, gate: Authorizer, ids: Ids) -> APIRouter:
    """A browser trades its key for an http-only cookie, so that no script can read it."""
    router = APIRouter(prefix="/api/session", tags=["access"])

    @router.post("")
    async def sign_in(wanted: SignIn, request: Request, response: Response) -> SessionView:
        principal = await gate.identify(
            {"authorization": f"Bearer {wanted.api_key}"}, {}, client_address(request.scope)
        )
        if principal is None:
            raise Unauthenticated("this key is not known here, or was revoked")
        if principal.scope is not Scope.ADMIN:
            raise Forbidden(
                f"the key {principal.name!r} has the scope {principal.scope}; signing in needs an admin key."
                " For programs, and for `corral chat`, this key is right."
            )
        if principal.key_id is not None:
            token = ids.token()
            await stores.access.open_session(principal.key_id, token, ttl_s=SESSION_TTL_S)
            gate.forget()
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
        """Null where nobody is signed in, which a page may ask; a key that is sent and not known is refused."""
        principal = await gate.identify(dict(request.headers), request.cookies, client_address(request.scope))
        if principal is not None:
            return SessionView(name=principal.name, scope=principal.scope)
        if "authorization" in request.headers:
            raise Unauthenticated("this key is not known here, or was revoked")
        _forget_cookies(request, response)
        return None

    @router.delete("", status_code=204)
    async def sign_out(request: Request) -> Response:
        token = request.cookies.get(SESSION_COOKIE)
        if token:
            await stores.access.close_session(hash_secret(token))
            gate.forget()
        response = Response(status_code=204)
        _forget_cookies(request, response)
        return response

    return router


def _forget_cookies(request: Request, response: Response) -> None:
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
        """Newest first; `before` an id for the page after; `since` an age (`2h`) or a time."""
        since_ms = _read_since(since, now_ms=await stores.nodes.now_ms()) if since else None
        events = await stores.events.read_latest(limit=limit, before=before, since_ms=since_ms)
        mentioned = {event.id: {event.subject, *_texts_in(event.detail)} for event in events}
        names = await stores.nodes.read_names(
            text for texts in mentioned.values() for text in texts if len(text) == ID_LENGTH
        )
        return [
            AuditEntry(
                id=event.id,
                at=datetime.fromtimestamp(event.at / 1000, UTC),
                actor=event.actor,
                action=event.action,
                subject=event.subject,
                detail=dict(event.detail),
                names={text: names[text] for text in sorted(mentioned[event.id] & names.keys())},
            )
            for event in events
        ]

    return router
