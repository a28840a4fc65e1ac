"""The web UI's files are compressed, cached by browsers, and confined to their directory."""

import contextlib
import gzip
import http.client
import re
from typing import Any

import pytest

from corral.frontend.http.static_ui import STATIC
from harness.programs import call

pytestmark = pytest.mark.skipif(not (STATIC / "index.html").exists(), reason="the web UI is not built; run ./dev ui")


def test_the_page_is_open_to_everyone_and_allows_no_foreign_content(frontend: Any) -> None:
    page = call("GET", f"{frontend.url}/")
    assert page.status == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-cache"
    assert _safe(page) == SAFE


SAFE = {"x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "no-referrer"}


def _safe(answer: Any) -> dict[str, str]:
    return {name: answer.headers.get(name) for name in SAFE}


def test_assets_are_compressed_and_may_be_kept_for_ever(frontend: Any) -> None:
    page = call("GET", f"{frontend.url}/").body.decode()
    (script,) = re.findall(r'<script[^>]* src="\.(/assets/[\w.-]+\.js)"', page)
    plain = call("GET", frontend.url + script)
    small = call("GET", frontend.url + script, headers={"Accept-Encoding": "gzip, br"})
    assert small.headers["content-encoding"] == "gzip"
    assert "immutable" in small.headers["cache-control"]
    assert _safe(plain) == _safe(small) == SAFE
    assert gzip.decompress(small.body) == plain.body
    assert len(small.body) < len(plain.body) / 2


@pytest.mark.parametrize("path", ["/../app.py", "/%2e%2e/app.py", "/assets/../../app.py", "/assets/%00"])
def test_nothing_outside_the_ui_is_served(frontend: Any, path: str) -> None:
    answer = call("GET", frontend.url + path)
    assert answer.status == 401
    assert b"FastAPI" not in answer.body


def test_a_browser_that_opens_any_page_gets_the_app_and_a_program_gets_the_api(frontend: Any) -> None:
    accepts = {"Accept": "text/html,application/xhtml+xml"}
    assert call("GET", f"{frontend.url}/", headers=accepts).headers["content-type"].startswith("text/html")
    for path, page in (("/backends", "./#/backends"), ("/models/a%20b", "../#/models/a%20b")):
        connection = http.client.HTTPConnection(frontend.url.removeprefix("http://"), timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=accepts)
            opened = connection.getresponse()
        assert (opened.status, opened.headers["location"]) == (302, page), "also below a path of a proxy"
    assert call("GET", f"{frontend.url}/backends", headers={"Accept": "application/json"}).status == 401


def test_a_long_listing_is_compressed_for_those_who_ask(frontend: Any) -> None:
    def get(path: str, accepts: str) -> Any:
        return call("GET", f"{frontend.url}{path}", key=frontend.admin.key, headers={"Accept-Encoding": accepts})

    plain = get("/openapi.json", "identity")
    small = get("/openapi.json", "br, gzip")
    assert small.headers["content-encoding"] == "gzip"
    assert small.headers["vary"] == "Accept-Encoding"
    assert int(small.headers["content-length"]) == len(small.body) < len(plain.body) / 4
    assert gzip.decompress(small.body) == plain.body
    assert "content-encoding" not in get("/openapi.json", "gzip;q=0").headers
    assert "content-encoding" not in get("/api/status", "gzip").headers, "not worth it"
