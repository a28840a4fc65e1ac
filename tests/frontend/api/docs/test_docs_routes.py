"""Who may read which description, and that browsers run nothing in it."""

import json

import pytest

from corral.frontend.http.client_paths import OLLAMA_ABSENT, OLLAMA_ADMIN, absent_path, is_ollamas, near_client_path
from harness.frontend import Frontend
from harness.programs import call


def test_the_page_of_all_apis_is_for_administrators(frontend: Frontend) -> None:
    assert call("GET", f"{frontend.url}/docs").status == 401
    page = frontend.admin.call("GET", "/docs")
    assert page.status == 200
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    text = page.body.decode()
    described = json.loads(frontend.admin.call("GET", "/openapi.json").body)
    for path in (*described["paths"], "/v1/messages", "/api/chat"):
        assert f"<code>{path}</code>" in text


def test_the_client_apis_are_described_to_everyone(frontend: Frontend) -> None:
    page, document = (call("GET", f"{frontend.url}/docs/clients{form}") for form in ("", ".json"))
    assert (page.status, document.status) == (200, 200)
    assert "/api/keys" not in page.body.decode()
    for path in json.loads(document.body)["paths"]:
        assert f"<code>{path}</code>" in page.body.decode()


def test_errors_of_ollamas_admin_paths_have_its_form(frontend: Frontend) -> None:
    unknown = frontend.admin.call("DELETE", "/api/delete", body={"model": "none-such:latest"})
    assert (unknown.status, "none-such" in unknown.json()["error"]) == (404, True)
    for body in ({}, {"model": ""}, {"model": "x" * 301}, {"model": 1}):
        rejected = frontend.admin.call("POST", "/api/pull", body=body)
        assert (rejected.status, isinstance(rejected.json()["error"], str)) == (400, True), rejected.body
    anonymous = call("POST", f"{frontend.url}/api/pull", body={"model": "x"})
    assert (anonymous.status, isinstance(anonymous.json()["error"], str)) == (401, True)


@pytest.mark.parametrize("path", [*OLLAMA_ABSENT, "/api/blobs/sha256:0", "/api/chats"])
def test_what_ollama_has_and_corral_has_not_is_told_in_ollamas_form(frontend: Frontend, path: str) -> None:
    """Also to users: otherwise their clients would show them that an admin key is needed."""
    for key in (frontend.admin.key, ""):
        refused = call("POST", f"{frontend.url}{path}", key=key, body={"model": "x"})
        assert refused.status == 404
        assert ("did you mean /api/chat?" if path == "/api/chats" else "Corral has no") in refused.json()["error"]


def test_no_path_of_the_admin_api_is_taken_for_a_mistyped_one(frontend: Frontend) -> None:
    described = json.loads(frontend.admin.call("GET", "/openapi.json").body)["paths"]
    assert len(described) > 50
    assert {
        path: near_client_path(path) or absent_path(path) for path in described if is_ollamas(path)
    } == dict.fromkeys(OLLAMA_ADMIN, "")
    assert not [path for path in described if near_client_path(path)]
