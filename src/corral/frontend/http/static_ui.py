"""The web UI: static files of the package, and one page for every path that a browser opens."""

import gzip
import mimetypes
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.frontend.http.middleware import SAFE_HEADERS

STATIC = Path(__file__).parent.parent / "static"
_API_PREFIXES = ("/api/", "/v1/", "/backends/", "/metrics", "/healthz", "/readyz", "/openapi.json", "/docs")
_POLICY = (
    "default-src 'self'; connect-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none';"
    " form-action 'self'"
)
_SAFE = {name.decode(): value.decode() for name, value in SAFE_HEADERS}
_PAGE_HEADERS = {**_SAFE, "Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
# Names of assets contain a hash of their content, so a cached asset never changes.
_ASSET_HEADERS = {**_SAFE, "Cache-Control": "public, max-age=31536000, immutable"}
_COMPRESSIBLE = (".js", ".css", ".html", ".svg", ".json", ".map")
_MISSING = (
    "<!doctype html><title>Corral</title><p>The web UI is not built into this installation. In a clone, run"
    " <code>./dev ui</code>; the API and the command line work without it."
)


@lru_cache(maxsize=64)
def _compressed(path: Path, _changed_ns: int) -> bytes:
    return gzip.compress(path.read_bytes(), 9, mtime=0)


class WebUi:
    """Goes before the authorization, because a browser loads the page before it can sign in. Serves only files."""

    def __init__(self, app: ASGIApp, *, static: Path = STATIC) -> None:
        self._app = app
        self._static = static.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            response = self._answer(scope)
            if response is not None:
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        path: str = scope["path"]
        if path.startswith(_API_PREFIXES):
            return None
        headers = dict(scope["headers"])
        file = self._find(path)
        if file is not None:
            asset = path.startswith("/assets/")
            return self._file(file, headers, _ASSET_HEADERS if asset else _PAGE_HEADERS)
        # Paths of pages and of the API may be the same (`/backends`): a browser that navigates accepts HTML.
        if path != "/" and b"text/html" not in headers.get(b"accept", b""):
            return None
        if path != "/":
            return self._redirect(path)
        index = self._find("/index.html")
        return (
            HTMLResponse(_MISSING, headers=_PAGE_HEADERS)
            if index is None
            else self._file(index, headers, _PAGE_HEADERS)
        )

    def _redirect(self, path: str) -> Response:
        """The page shows what its fragment says. Relative, because a proxy may serve Corral below a path of its own."""
        up = "../" * (path.count("/") - 1) or "./"
        return RedirectResponse(f"{up}#{quote(path)}", status_code=302, headers=_SAFE)

    def _find(self, path: str) -> Path | None:
        """A file below the static directory; None for any other path."""
        if "\0" in path:
            return None
        file = (self._static / path.lstrip("/")).resolve()
        return file if file.is_relative_to(self._static) and file.is_file() else None

    def _file(self, file: Path, headers: dict[bytes, bytes], extra: dict[str, str]) -> Response:
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        if file.suffix in _COMPRESSIBLE and b"gzip" in headers.get(b"accept-encoding", b""):
            content = _compressed(file, file.stat().st_mtime_ns)
            return Response(
                content, media_type=kind, headers={**extra, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            )
        return Response(file.read_bytes(), media_type=kind, headers=extra)
