"""`/docs`: all APIs, for administrators. `/docs/clients`: the client APIs, for everyone."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, JSONResponse, Response

from corral.frontend.api.docs.client_api import client_openapi
from corral.frontend.api.docs.page import POLICY, render_page

_HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
_CLIENTS = (
    "<p>Send your key as <code>Authorization: Bearer KEY</code>, or as <code>x-api-key</code> with Anthropic's API."
    ' The same as OpenAPI: <a href="/docs/clients.json">/docs/clients.json</a>.</p>'
)
_ALL = (
    '<p>The admin API as OpenAPI: <a href="/openapi.json">/openapi.json</a>; the client APIs:'
    ' <a href="/docs/clients.json">/docs/clients.json</a>. The admin API needs an admin key'
    " (<code>Authorization: Bearer KEY</code>) or a browser session.</p>"
)


def docs_routes(admin_openapi: Callable[[], dict[str, Any]]) -> APIRouter:
    """`admin_openapi`: the description of the routes that the frontend has."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def show_docs() -> Response:
        clients = client_openapi()
        admin = admin_openapi()
        shown = {**admin, "info": {**admin["info"], "title": "Admin API"}}
        return HTMLResponse(render_page("Corral's APIs", _ALL, clients, shown), headers=_HEADERS)

    @router.get("/docs/clients")
    async def show_client_docs() -> Response:
        return HTMLResponse(render_page("Corral for clients", _CLIENTS, client_openapi()), headers=_HEADERS)

    @router.get("/docs/clients.json")
    async def show_client_openapi() -> Response:
        return JSONResponse(client_openapi())

    return router
