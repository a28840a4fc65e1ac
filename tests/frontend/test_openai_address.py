"""`/v1` and `/metrics` of a real frontend: keys, revocation, several processes on one port."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.frontend import Frontend
from harness.machine_speed import promised
from harness.nats import Nats
from harness.programs import call
from harness.waiting import wait_until


def models(frontend: Frontend, key: str | None) -> int:
    return call("GET", f"{frontend.url}/v1/models", key=key).status


def test_a_key_works_immediately_and_is_rejected_within_five_seconds_of_its_revocation(frontend: Frontend) -> None:
    made = frontend.admin.call("POST", "/api/keys", body={"name": "short-lived", "scope": "user"}).json()
    assert models(frontend, made["key"]) == 200
    assert models(frontend, None) == 401
    assert frontend.admin.call("DELETE", f"/api/keys/{made['id']}").status == 200
    with promised("the key's end", within_s=5):
        wait_until(lambda: models(frontend, made["key"]) == 401, what="the key is dead")


def test_unknown_models_are_answered_in_openais_form(frontend: Frontend) -> None:
    answer = frontend.admin.call("POST", "/v1/chat/completions", body={"model": "nothing", "messages": []})
    assert answer.status == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_metrics_need_an_admin_key(frontend: Frontend) -> None:
    assert call("GET", f"{frontend.url}/metrics").status == 401
    made = frontend.admin.call("POST", "/api/keys", body={"name": "plain", "scope": "user"}).json()
    assert call("GET", f"{frontend.url}/metrics", key=made["key"]).status == 403
    answer = frontend.admin.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"# TYPE corral_requests_total counter" in answer.body


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats) -> Iterator[Frontend]:
    running = Frontend(tmp_path_factory.mktemp("pair"), nats_for_module, "--processes", "2", "--metrics-public")
    yield running
    assert running.program.stop() == 0


def workers(pair: Frontend) -> list[psutil.Process]:
    return [child for child in psutil.Process(pair.program.pid).children() if child.is_running()]


def listening(pair: Frontend) -> int:
    port = int(pair.url.rpartition(":")[2])
    return sum(
        any(link.laddr.port == port and link.status == "LISTEN" for link in child.net_connections("tcp"))
        for child in workers(pair)
    )


def unknown_models(pair: Frontend) -> int:
    """As counted, by whichever process answers."""
    text = call("GET", f"{pair.url}/metrics").body.decode()
    lines = [line for line in text.splitlines() if 'reason="model_not_found"' in line]
    return sum(int(line.rpartition(" ")[2]) for line in lines)


def test_two_processes_share_a_port_and_one_store(pair: Frontend) -> None:
    wait_until(lambda: listening(pair) == 2, what="both listen", within_s=30)
    made = pair.admin.call("POST", "/api/keys", body={"name": "two", "scope": "user"}).json()
    for _ in range(20):
        assert models(pair, made["key"]) == 200
    assert pair.admin.call("DELETE", f"/api/keys/{made['id']}").status == 200
    with promised("the key's end on both", within_s=7):
        wait_until(lambda: all(models(pair, made["key"]) == 401 for _ in range(20)), what="dead on both")
    frontends = pair.admin.call("GET", "/api/status").json()["frontends"]
    assert len(frontends) == 2


def test_metrics_are_those_of_both(pair: Frontend) -> None:
    for _ in range(40):
        assert pair.admin.call("POST", "/v1/chat/completions", body={"model": "nothing"}).status == 404
    wait_until(lambda: {unknown_models(pair) for _ in range(10)} == {40}, what="all are counted", within_s=15)


def test_a_killed_process_is_restarted_while_the_other_serves(pair: Frontend) -> None:
    wait_until(lambda: listening(pair) == 2, what="both listen", within_s=30)
    before = unknown_models(pair)
    victim = workers(pair)[0]
    os.kill(victim.pid, signal.SIGKILL)
    pair.program.wait_for_output("process.ended")
    for _ in range(20):
        assert models(pair, pair.admin.key) == 200
    wait_until(lambda: listening(pair) == 2, what="it is back", within_s=60)
    wait_until(lambda: {unknown_models(pair) for _ in range(10)} == {before}, what="nothing is forgotten")


def test_all_processes_end_with_their_parent(tmp_path: Path, nats_for_module: Nats) -> None:
    running = Frontend(tmp_path, nats_for_module, "--processes", "2")
    wait_until(lambda: listening(running) == 2, what="both listen", within_s=30)
    children = workers(running)
    running.program.kill()
    wait_until(lambda: not any(child.is_running() for child in children), what="all are gone", within_s=30)
