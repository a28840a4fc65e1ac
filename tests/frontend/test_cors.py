"""Web pages of another origin call the client APIs of a real frontend, in its gateway and in its app."""

from collections.abc import Iterator

import httpx
import pytest

from harness.frontend import Frontend
from harness.nats import Nats

ORIGIN = "https://app.example"
ASK = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}
ALLOWED, EXPOSED = "access-control-allow-origin", "access-control-expose-headers"
PATHS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/messages"),
    ("GET", "/v1/models"),
    ("POST", "/api/chat"),
    ("GET", "/api/tags"),
    ("POST", "/api/pull"),
    ("DELETE", "/api/delete"),
    ("POST", "/api/copy"),
]


@pytest.fixture(scope="module")
def open_to_pages(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats) -> Iterator[Frontend]:
    running = Frontend(tmp_path_factory.mktemp("cors"), nats_for_module, "--cors-origin", ORIGIN)
    yield running
    assert running.program.stop() == 0


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_pages_of_the_origin_may_call_the_client_apis(open_to_pages: Frontend, method: str, path: str) -> None:
    with httpx.Client(base_url=open_to_pages.url, timeout=20) as page:
        asked = page.options(path, headers=ASK)
        assert (asked.status_code, asked.headers[ALLOWED]) == (200, ORIGIN)
        assert method in asked.headers["access-control-allow-methods"]
        assert asked.headers["access-control-allow-headers"] == "authorization,content-type"
        for key in ("wrong", open_to_pages.admin.key):
            headers = {"Origin": ORIGIN, "Authorization": f"Bearer {key}"}
            answer = page.request(method, path, json={"model": "none-of-this-name"}, headers=headers)
            assert (answer.headers.get_list(ALLOWED), "retry-after" in answer.headers[EXPOSED]) == ([ORIGIN], True)
            assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("path", ["/api/nodes", "/api/models", "/api/keys", "/metrics"])
def test_pages_may_not_call_the_admin_api(open_to_pages: Frontend, path: str) -> None:
    with httpx.Client(base_url=open_to_pages.url, timeout=20) as page:
        headers = {"Origin": ORIGIN, "Authorization": f"Bearer {open_to_pages.admin.key}"}
        for answer in (page.options(path, headers=ASK), page.get(path, headers=headers)):
            assert ALLOWED not in answer.headers


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_without_the_setting_no_page_may(frontend: Frontend, method: str, path: str) -> None:
    with httpx.Client(base_url=frontend.url, timeout=20) as page:
        headers = {"Origin": ORIGIN, "Authorization": f"Bearer {frontend.admin.key}"}
        answers = (
            page.options(path, headers=ASK),
            page.request(method, path, json={"model": "none-of-this-name"}, headers=headers),
        )
        assert not any(name.startswith("access-control") for answer in answers for name in answer.headers)
