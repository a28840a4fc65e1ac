"""`/v1/models`: the models that a key may use, by name and by alias."""

from operator import itemgetter
from urllib.parse import unquote_to_bytes

import msgspec

from corral.core.errors import InvalidInput
from corral.frontend.gateway.endpoints import ServedModel
from corral.frontend.gateway.error_responses import ErrorResponse
from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.route_table import RouteTable
from corral.frontend.http.client_paths import near_client_path

MODELS = b"/v1/models"


def list_models(table: RouteTable, key: ClientKey, method: bytes, path: bytes) -> bytes:
    """The answer to `path`, which is that of the list or of one model."""
    if method not in (b"GET", b"HEAD"):
        raise wrong_method(method, right="GET")
    if path in (MODELS, MODELS + b"/"):
        data = [_model(name, served) for name, served in usable_models(table, key)]
        return msgspec.json.encode({"object": "list", "data": data})
    return msgspec.json.encode(_model(*find_model(table, key, path)))


def usable_models(table: RouteTable, key: ClientKey) -> list[tuple[str, ServedModel]]:
    """By name, by alias and by route, in order. A route is described by the first of its models."""
    usable = {name: served for name, served in table.by_name.items() if key.may_use(served.name)}
    usable |= {name: one.targets[0] for name, one in table.public.items() if key.may_use(name) and one.targets}
    return sorted(usable.items(), key=itemgetter(0))


def reachable_models(table: RouteTable, key: ClientKey) -> list[ServedModel]:
    """Those that the key may use by their own name, or by any route."""
    routed = {served for name, one in table.public.items() if key.may_use(name) for served in one.targets}
    return [served for served in table.models() if key.may_use(served.name) or served in routed]


def find_model(table: RouteTable, key: ClientKey, path: bytes) -> tuple[str, ServedModel]:
    """The model that `path` names. Raises ErrorResponse."""
    name = _unquote(path[len(MODELS) + 1 :])
    return name, find_usable(table, key, name)


def find_usable(table: RouteTable, key: ClientKey, name: str) -> ServedModel:
    """The model that a listed name leads to. Raises ErrorResponse."""
    found = dict(usable_models(table, key)).get(name)
    if found is None:
        raise unknown_model(table, key, name)
    return found


def unknown_path(path: bytes) -> ErrorResponse:
    given = path.decode("latin-1")
    near = near_client_path(given)
    hint = f"; did you mean {near}?" if near else ""
    return ErrorResponse(404, f"no such path: {given[:200]}{hint}", code="unknown_url")


def unknown_model(table: RouteTable, key: ClientKey, name: str) -> ErrorResponse:
    if not name:
        return ErrorResponse(400, "the request has no `model`", code="missing_model", param="model")
    near = table.near(name, allowed=key.models)
    hint = f" Did you mean {' or '.join(near)}?" if near else " GET /v1/models lists the models you may use."
    message = f"model {name[:200]!r} does not exist, or this key may not use it.{hint}"
    return ErrorResponse(404, message, code="model_not_found", param="model")


def wrong_method(method: bytes, *, right: str) -> ErrorResponse:
    message = f"method {method.decode('latin-1')} is not allowed here; use {right}"
    return ErrorResponse(405, message, code="method_not_allowed", allow=right)


def _model(name: str, served: ServedModel) -> dict[str, object]:
    """`root`: the model that an alias refers to."""
    created_s = served.route.created_at_ms // 1000
    found: dict[str, object] = {"id": name, "object": "model", "created": created_s, "owned_by": "corral"}
    return found if name == served.name else {**found, "root": served.name}


def _unquote(path: bytes) -> str:
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise InvalidInput("the model name in the path is not UTF-8") from None
