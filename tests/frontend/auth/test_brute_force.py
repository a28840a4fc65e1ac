"""Guessing keys and tokens is slow, and only for the address that guesses (S-07); the audit log records it and stays
small."""

import http.client
import json
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from harness.machine_speed import Yardstick
from harness.programs import Admin, call, run_cli
from harness.waiting import wait_until

GUESSER = "127.0.0.2"
ELSEWHERE = "127.0.0.3"


class From:
    """Calls from one address, on one connection, which ends with the test."""

    opened: ClassVar[list["From"]] = []

    def __init__(self, frontend: Any, address: str) -> None:
        host, _, port = frontend.url.removeprefix("http://").partition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=20, source_address=(address, 0))
        From.opened.append(self)

    def close(self) -> None:
        self._connection.close()

    def call(self, method: str, path: str, key: str, body: Any = None) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
        response = self._connection.getresponse()
        response.read()
        return response

    def status(self, method: str, path: str, key: str, body: Any = None) -> int:
        return self.call(method, path, key, body).status

    def status_with(self, headers: dict[str, str], method: str, path: str) -> int:
        self._connection.request(method, path, headers=headers)
        response = self._connection.getresponse()
        response.read()
        return response.status


@pytest.fixture(autouse=True)
def connections() -> Iterator[None]:
    yield
    while From.opened:
        From.opened.pop().close()


@pytest.fixture
def guesser(frontend: Any) -> From:
    return From(frontend, GUESSER)


def exhaust(guesser: From) -> http.client.HTTPResponse:
    for number in range(200):
        answer = guesser.call("GET", "/api/nodes", f"corral-guess-{time.monotonic_ns()}-{number}")
        if answer.status == 429:
            return answer
        assert answer.status == 401
    raise AssertionError("200 wrong keys were all looked at")


def test_only_the_address_that_guesses_is_rate_limited(frontend: Any, guesser: From) -> None:
    answer = exhaust(guesser)
    assert 1 <= int(answer.headers["Retry-After"]) <= 5
    assert From(frontend, ELSEWHERE).status("GET", "/api/nodes", frontend.admin.key) == 200


def test_a_valid_key_works_from_an_address_that_guesses(frontend: Any, guesser: From) -> None:
    made = frontend.admin.call("POST", "/api/keys", body={"name": "newcomer", "scope": "admin"}).json()
    exhaust(guesser)
    assert guesser.status("GET", "/api/nodes", made["key"]) == 200, "never seen from there before"
    exhaust(guesser)
    assert guesser.status("GET", "/v1/models", made["key"]) == 200
    frontend.admin.call("DELETE", f"/api/keys/{made['id']}")
    exhaust(guesser)
    assert guesser.status("GET", "/api/nodes", made["key"]) == 429


def test_signing_in_works_from_an_address_that_guesses(frontend: Any, guesser: From) -> None:
    exhaust(guesser)
    answer = guesser.call("POST", "/api/session", "none", {"api_key": frontend.admin.key})
    assert answer.status == 200
    cookie = next(value for value in answer.headers.get_all("Set-Cookie", []) if value.startswith("corral_session="))
    exhaust(guesser)
    assert guesser.status_with({"Cookie": cookie.partition(";")[0]}, "GET", "/api/nodes") == 200
    assert guesser.status_with({"Cookie": "corral_session=wrong"}, "GET", "/api/nodes") == 429


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/session", {"api_key": "wrong"}),
        ("/api/node/register", {"name": "x", "address": "127.0.0.1:1", "token": "wrong"}),
    ],
)
def test_sign_in_and_registration_are_limited_alike(guesser: From, path: str, body: dict[str, str]) -> None:
    exhaust(guesser)
    field = "token" if "token" in body else "api_key"
    guess = f"wrong-{time.monotonic_ns()}"
    assert guesser.status("POST", path, guess, {**body, field: guess}) == 429


def test_heartbeats_are_accepted_from_an_address_that_guesses(frontend: Any, guesser: From) -> None:
    node = frontend.register(name="steady").json()
    exhaust(guesser)
    for _ in range(5):
        status = guesser.status("POST", f"/api/node/{node['id']}/heartbeat", "test-registration-token", {})
        assert status == 200


NOBODY = "0c6a2b1e-5a1f-4b0e-9d0b-2f6f1b7d9a11"
CALLS = {
    "heartbeat": ("POST", "/heartbeat"),
    "drain": ("POST", "/drain"),
    "resume": ("POST", "/resume"),
    "deregister": ("POST", "/deregister"),
    "delete": ("DELETE", ""),
    "models": ("GET", "/models"),
}


def refused_of(frontend: Any, node: dict[str, Any]) -> Any:
    return frontend.admin.call("GET", f"/api/nodes/{node['id']}").json()["refused"]


def test_messages_without_a_credential_are_not_counted_against_the_node(frontend: Any) -> None:
    node, stranger = frontend.register(name="maligned").json(), From(frontend, "127.0.0.8")
    heartbeat = ("POST", f"/api/node/{node['id']}/heartbeat")
    assert stranger.status(*heartbeat, "made-up", {"available_vram": "much"}) == 401
    worker = From(frontend, "127.0.0.1")
    assert worker.status(*heartbeat, "test-registration-token", {"total_disk": -1}) == 200
    wait_until(lambda: refused_of(frontend, node) is not None, what="counted against its node", within_s=10)
    assert refused_of(frontend, node)["count"] == 1


@pytest.mark.parametrize("node", [NOBODY, "%00", "x" * 300, "a'--"], ids=["unknown", "nul", "long", "quote"])
@pytest.mark.parametrize(("method", "path"), CALLS.values(), ids=CALLS)
def test_unknown_node_ids_count_as_guesses(frontend: Any, method: str, path: str, node: str) -> None:
    caller = From(frontend, "127.0.0.4")
    statuses = [caller.status(method, f"/api/node/{node}{path}", f"x-{number}") for number in range(40)]
    assert set(statuses) <= {404, 429}
    assert statuses[-1] == 429


def test_heartbeats_of_unknown_nodes_fail_no_other_heartbeat(frontend: Any) -> None:
    """H1: 308 of 334 good ones failed before."""
    node, over, evil = frontend.register(name="witness").json(), threading.Event(), From(frontend, "127.0.0.5")
    sent: list[int] = []

    def flood() -> None:
        while not over.is_set():
            sent.append(evil.status("POST", "/api/node/%00/heartbeat", "x", {}))

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        wait_until(lambda: len(sent) > 50, what="a flood")
        witness = From(frontend, ELSEWHERE)
        heartbeat = ("POST", f"/api/node/{node['id']}/heartbeat", "test-registration-token")
        poisoned = {"gpu_vendor": "a\0b", "available_vram": 1 << 64}
        answers = [witness.status(*heartbeat, poisoned if number % 2 else {}) for number in range(200)]
    finally:
        over.set()
        flooding.join(60)
    assert set(answers) == {200}
    wait_until(lambda: refused_of(frontend, node) is not None, what="counted against its node", within_s=10)
    assert "heartbeat" in refused_of(frontend, node)["reason"]


def test_a_denied_path_with_nul_is_recorded_and_answered(frontend: Any) -> None:
    made = frontend.admin.call("POST", "/api/keys", body={"name": "curious", "scope": "user"}).json()
    assert Admin(frontend.url, made["key"]).call("GET", "/api/nodes/%00%01x").status == 403
    entries = frontend.admin.call("GET", "/api/audit?limit=1000").json()
    assert [entry["subject"] for entry in entries if entry["actor"] == "key curious"] == ["GET /api/nodes/\\x00\\x01x"]


def test_a_flood_of_guesses_does_not_slow_the_others_down(frontend: Any, guesser: From) -> None:
    other, over = From(frontend, ELSEWHERE), threading.Event()

    answers: list[int] = []

    def flood() -> None:
        while not over.is_set():
            answers.append(guesser.status("GET", "/api/nodes", f"corral-flood-{time.monotonic_ns()}"))

    def takes_s() -> float:
        took_s = []
        for _ in range(40):
            began_s = time.monotonic()
            assert other.status("GET", "/healthz", "none") == 200
            took_s.append(time.monotonic() - began_s)
        return statistics.fmean(took_s)

    calm_s = takes_s()
    guessing = threading.Thread(target=flood)
    guessing.start()
    try:
        wait_until(lambda: 429 in answers, what="it is a flood")
        before = len(answers)
        with Yardstick() as yardstick:
            beside_s = takes_s()
        assert len(answers) > before, "it went on meanwhile"
    finally:
        over.set()
        guessing.join(60)
    assert beside_s < yardstick.allows_s(0.05) + 5 * calm_s


def test_the_audit_log_names_the_address_once_in_a_while(frontend: Any, guesser: From) -> None:
    exhaust(guesser)
    for number in range(60):
        guesser.status("GET", "/api/nodes", f"corral-more-{number}")
    entries = frontend.admin.call("GET", "/api/audit?limit=1000&since=1h").json()
    recorded = [entry for entry in entries if entry["actor"] == f"address {GUESSER}"]
    assert 1 <= len(recorded) <= 25


def test_a_user_key_cannot_flood_the_audit_log(frontend: Any) -> None:
    made = frontend.admin.call("POST", "/api/keys", body={"name": "flooder", "scope": "user"}).json()
    user = Admin(frontend.url, made["key"])
    assert {user.call("GET", "/api/nodes").status for _ in range(100)} == {403}
    entries = frontend.admin.call("GET", "/api/audit?limit=1000").json()
    recorded = [entry for entry in entries if entry["actor"] == "key flooder"]
    assert 1 <= len(recorded) <= 25


@pytest.mark.parametrize(("since", "status"), [("2h", 200), ("2020-01-01T00:00:00Z", 200), ("yesterday", 400)])
def test_the_audit_log_can_be_read_since_a_time(frontend: Any, since: str, status: int) -> None:
    answer = frontend.admin.call("GET", f"/api/audit?since={since}")
    assert answer.status == status
    assert answer.json() if status == 200 else "2h" in answer.message


def test_the_command_line_shows_the_audit_log(frontend: Any) -> None:
    for name in ("before-the-log", "for-the-log"):
        frontend.admin.call("POST", "/api/keys", body={"name": name, "scope": "user"})
    where = ("--url", frontend.url, "--data-dir", str(frontend.data))
    shown = run_cli("audit", "--limit", "1000", *where)
    assert shown.returncode == 0, shown.stderr
    assert "key.created" in shown.stdout
    assert "for-the-log" in shown.stdout
    listed = json.loads(run_cli("audit", "--json", "--limit", "3", "--since", "1h", *where).stdout)
    assert len(listed) == 3
    assert listed == frontend.admin.call("GET", "/api/audit?limit=3&since=1h").json()
    wrong = run_cli("audit", "--since", "soon", *where)
    assert (wrong.returncode, "soon" in wrong.stderr) == (2, True)


def test_other_clients_were_not_affected(frontend: Any) -> None:
    assert call("GET", f"{frontend.url}/readyz").status == 200
    assert "Traceback" not in frontend.program.output()
