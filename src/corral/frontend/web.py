"""The web UI: files built into the package, and one page for every address a browser may open."""

from pathlib import Path

from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

STATIC = Path(__file__).parent / "static"
_API_PREFIXES = ("/api/", "/v1/", "/metrics", "/healthz", "/readyz", "/openapi.json", "/docs")
_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_MISSING = (
    "<!doctype html><title>Corral</title><p>The web UI is not built into this installation. In a clone, run"
    " <code>./dev ui</code>; the API and the command line work without it."
)


class WebUi:
    """In front of the gate, because a browser has to load the page before it can sign in. It serves files only."""

    def __init__(self, app: ASGIApp, *, static: Path = STATIC) -> None:
        self._app = app
        self._static = static
        self._files = StaticFiles(directory=static, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            response = self._page(scope)
            if response is not None:
                await response(scope, receive, send)
                return
            if self._is_file(scope["path"]):
                await self._files(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_file(self, path: str) -> bool:
        if path.startswith(_API_PREFIXES) or ".." in path:
            return False
        return path != "/" and (self._static / path.lstrip("/")).is_file()

    def _page(self, scope: Scope) -> Response | None:
        """Page addresses and API paths may coincide (`/backends`): a browser that navigates asks for HTML."""
        if scope["path"].startswith(_API_PREFIXES) or self._is_file(scope["path"]):
            return None
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        if b"text/html" not in accept and scope["path"] != "/":
            return None
        index = self._static / "index.html"
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        if not index.is_file():
            return HTMLResponse(_MISSING, headers=headers)
        return FileResponse(index, headers=headers)
