"""Every route is denied unless it is declared open (S-01, S-02), and requests are bounded."""

import json
import socket
from typing import Any

import pytest

from harness.programs import Admin, call
from harness.routes import admin_routes, fill
from harness.waiting import wait_until

OPEN = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/api/session"),
    ("POST", "/api/session"),
    ("DELETE", "/api/session"),
}


def test_only_open_routes_answer_an_anonymous_client(frontend: Any) -> None:
    routes = admin_routes(frontend.admin)
    assert len(routes) > 25
    answered = {(m, p) for m, p in routes if call(m, frontend.url + fill(p), body={}).status not in (401, 403)}
    # A sign-in without a key is malformed, not denied. Reading that nobody is signed in and signing out are harmless.
    assert answered == {(method, path) for method, path in OPEN if path.startswith("/api")}


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/metrics", "/api", "/api/", "/anything", "/v1/models"])
def test_an_unknown_path_is_as_closed_as_a_known_one(frontend: Any, path: str) -> None:
    assert call("GET", frontend.url + path).status == 401


def test_a_user_key_opens_no_admin_route(frontend: Any) -> None:
    key = frontend.admin.call("POST", "/api/keys", body={"name": "someone", "scope": "user"}).json()["key"]
    user = Admin(frontend.url, key)
    for method, path in admin_routes(frontend.admin):
        if path.startswith(("/api/node/", "/api/session")):
            continue
        answer = user.call(method, fill(path), body={})
        assert answer.status == 403, (method, path, answer.body)
        assert "admin key" in answer.message
    audit = frontend.admin.call("GET", "/api/audit?limit=500").json()
    denied = [event for event in audit if event["action"] == "access.denied"]
    assert {event["actor"] for event in denied} == {"key someone"}


def test_denials_have_the_same_form_everywhere(frontend: Any) -> None:
    key = frontend.admin.call("POST", "/api/keys", body={"name": "kinds", "scope": "user"}).json()["key"]
    for path in ("/api/nodes", "/api/keys", "/api/nodes/x/models"):
        assert Admin(frontend.url, key).call("GET", path).json()["error"]["type"] == "forbidden"
    wrong = frontend.register(bearer="wrong", name="lost", token="wrong")
    assert (wrong.status, "`corral join-command`" in wrong.message) == (401, True)


def test_a_wrong_or_revoked_key_is_rejected(frontend: Any) -> None:
    wrong = call("GET", f"{frontend.url}/api/nodes", key="corral-wrong")
    assert (wrong.status, "unknown or revoked" in wrong.message) == (401, True)
    assert "is required" in call("GET", f"{frontend.url}/api/nodes").message
    made = frontend.admin.call("POST", "/api/keys", body={"name": "short-lived", "scope": "admin"}).json()
    other = Admin(frontend.url, made["key"])
    assert other.call("GET", "/api/nodes").status == 200
    revoked = frontend.admin.call("DELETE", f"/api/keys/{made['id']}")
    assert revoked.status == 200
    assert revoked.json()["revoked_at"] >= made["created_at"]
    assert other.call("GET", "/api/nodes").status == 401


def test_a_body_that_is_not_sent_as_json_is_rejected_with_the_reason(frontend: Any) -> None:
    """As curl sends one whose user forgot the header."""
    sent = b'{"name": "x", "scope": "user"}'
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = frontend.admin.call("POST", "/api/keys", raw=sent, headers=form)
    assert (answer.status, "Content-Type: application/json" in answer.message) == (400, True), answer.body
    assert "Content-Type" not in frontend.admin.call("POST", "/api/keys", raw=b"[]").message


def test_a_key_revoked_here_serves_no_request_from_the_answer_on(frontend: Any) -> None:
    """Several times: what the lane remembers is a moment old or fresh, and neither may count."""
    for turn in range(5):
        made = frontend.admin.call("POST", "/api/keys", body={"name": f"turn-{turn}", "models": []}).json()
        other = Admin(frontend.url, made["key"])
        assert other.call("GET", "/v1/models").status == 200
        assert frontend.admin.call("PUT", f"/api/keys/{made['id']}/models", body={"models": None}).status == 200
        chat = {"model": "nosuch", "messages": []}
        assert other.call("POST", "/v1/chat/completions", body=chat).status == 404, "no longer limited"
        assert frontend.admin.call("DELETE", f"/api/keys/{made['id']}").status == 200
        assert other.call("GET", "/v1/models").status == 401


def test_keys_are_kept_hashed_and_shown_once(frontend: Any) -> None:
    made = frontend.admin.call("POST", "/api/keys", body={"name": "secret", "scope": "user"}).json()
    twin = frontend.admin.call("POST", "/api/keys", body={"name": "secret", "scope": "user"})
    assert (twin.status, "has the name" in twin.message) == (409, True)
    listed = frontend.admin.call("GET", "/api/keys").body.decode()
    assert made["key"] not in listed
    stored = b"".join(path.read_bytes() for path in frontend.data.glob("corral.db*"))
    for secret in (made["key"], frontend.admin.key, "test-registration-token"):
        assert secret.encode() not in stored


def test_a_browser_session_needs_the_client_header_to_change_anything(frontend: Any) -> None:
    signed_in = call("POST", f"{frontend.url}/api/session", body={"api_key": frontend.admin.key})
    cookie = signed_in.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    jar = {"Cookie": cookie.partition(";")[0]}
    assert call("GET", f"{frontend.url}/api/nodes", headers=jar).status == 200
    body = {"name": "by-browser", "scope": "user"}
    forged = call("POST", f"{frontend.url}/api/keys", body=body, headers=jar)
    assert forged.status == 403
    meant = call("POST", f"{frontend.url}/api/keys", body=body, headers={**jar, "X-Corral-Client": "ui"})
    assert meant.status == 201
    assert call("DELETE", f"{frontend.url}/api/session", headers=jar).status == 204
    ended = call("GET", f"{frontend.url}/api/nodes", headers=jar)
    assert (ended.status, "sign in again" in ended.message) == (401, True)


def test_anyone_may_read_the_session_and_an_ended_one_is_deleted(frontend: Any) -> None:
    address = f"{frontend.url}/api/session"
    nobody = call("GET", address)
    assert (nobody.status, nobody.json(), "set-cookie" in nobody.headers) == (200, None, False)
    assert frontend.admin.call("GET", "/api/session").json()["scope"] == "admin"
    assert call("GET", address, headers={"Authorization": "Bearer nope"}).status == 401
    dead = call("GET", address, headers={"Cookie": "corral_session=dead; corral_signed_in=yes"})
    assert (dead.status, dead.json()) == (200, None)
    assert 'corral_session=""; ' in dead.headers["set-cookie"]


def test_a_wrong_key_does_not_sign_in(frontend: Any) -> None:
    answer = call("POST", f"{frontend.url}/api/session", body={"api_key": "nope"})
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)


def test_a_user_key_does_not_sign_in_because_no_page_would_work_with_it(frontend: Any) -> None:
    made = frontend.admin.call("POST", "/api/keys", body={"name": "app", "scope": "user"}).json()
    answer = call("POST", f"{frontend.url}/api/session", body={"api_key": made["key"]})
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)
    assert "signing in needs an admin key; the key 'app' has the scope user" in answer.message


@pytest.mark.parametrize(
    ("method", "path", "raw", "status"),
    [
        ("POST", "/api/keys", b"{", 400),
        ("POST", "/api/keys", b"[]", 400),
        ("POST", "/api/keys", b'{"name":"","scope":"user"}', 400),
        ("POST", "/api/keys", b'{"name":"x","scope":"king"}', 400),
        ("POST", "/api/keys", b"[" * 100_000, 400),
        ("POST", "/api/keys", b'{"name":"' + b"x" * (2 << 20) + b'"}', 413),
        ("POST", "/api/nodes/nope/approve", b"", 404),
        ("PUT", "/api/nodes/nope/labels", b'{"a":1}', 400),
        ("DELETE", "/api/keys/nope", None, 404),
        ("POST", "/api/nodes", b"{}", 405),
        ("GET", "/api/nothing", None, 404),
        ("GET", "/api/audit?limit=0", None, 400),
    ],
)
def test_bad_input_gets_a_clear_4xx(frontend: Any, method: str, path: str, raw: bytes | None, status: int) -> None:
    answer = frontend.admin.call(method, path, raw=raw)
    assert answer.status == status, answer.body
    assert answer.message
    assert "Traceback" not in answer.body.decode()


def test_a_body_of_unknown_length_is_cut_off_at_the_limit(frontend: Any) -> None:
    host, port = frontend.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(
            b"POST /api/keys HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/json\r\nAuthorization: Bearer " + frontend.admin.key.encode() + b"\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        try:
            for _ in range(64):
                connection.sendall(chunk)
        except OSError:
            pass  # it may hang up while we still send
        answer = connection.recv(4096)
    assert b"413" in answer.split(b"\r\n")[0]


def test_the_frontend_is_still_healthy_afterwards(frontend: Any) -> None:
    assert frontend.admin.call("GET", "/api/status").json()["bus"]["connected"]
    wait_until(lambda: call("GET", f"{frontend.url}/readyz").status == 200, what="ready")
    assert "Traceback" not in frontend.program.output()


def test_the_description_of_the_api_is_published_to_administrators(frontend: Any) -> None:
    described = json.loads(frontend.admin.call("GET", "/openapi.json").body)
    assert "/api/nodes" in described["paths"]
