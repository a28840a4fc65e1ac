"""Another machine under a node's name waits for an administrator, and the node is not affected (M3)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.frontend import TOKEN, Frontend
from harness.nats import Nats
from harness.ports import take_ports
from harness.programs import Program, call, clean_environment, run_cli
from harness.waiting import wait_until


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats) -> Iterator[Frontend]:
    directory = tmp_path_factory.mktemp("replacement")
    running = Frontend(directory, nats_for_module, "--auto-approve", "--trusted-proxies", "127.0.0.1")
    yield running
    assert running.program.stop() == 0


def cli(frontend: Frontend, *words: str) -> Any:
    return run_cli(*words, "--url", frontend.url, "--data-dir", str(frontend.data))


def test_a_wiped_worker_waits_until_an_administrator_confirms_that_it_replaces_the_old_one(
    frontend: Frontend, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("machine")
    port = take_ports(4)

    def start(disk: str) -> Program:
        return Program(
            "worker", "--join", frontend.url, "--token", TOKEN, "--name", "phoenix", "--data-dir",
            str(directory / disk), "--port", str(port), "--backend-ports", f"{port + 1}-{port + 3}",
            log=directory / f"{disk}.log", environment=clean_environment(),
        )  # fmt: skip

    first = start("first")
    try:
        frontend.admin.wait_for_status("phoenix", "healthy")
        before = frontend.admin.nodes()["phoenix"]
    finally:
        first.kill()
    frontend.admin.wait_for_status("phoenix", "offline")
    second = start("second")
    try:
        wait_until(lambda: frontend.admin.nodes()["phoenix"]["claims"], what="claimed", within_s=60)
        node = frontend.admin.nodes()["phoenix"]
        (claim,) = node["claims"]
        assert (node["id"], node["epoch"], node["status"]) == (before["id"], before["epoch"], "offline")
        assert (claim["address"], claim["localai"]) == ("127.0.0.1", False)
        short = claim["id"][:8]
        wait_until(lambda: f"nodes approve phoenix --claim {short}" in second.output(), what="the worker says it")
        assert short in cli(frontend, "nodes", "list", "--json").stdout
        shown = cli(frontend, "nodes", "show", "phoenix").stdout
        made_at = claim["made_at"][:19].replace("T", " ")
        for text in (f"nodes approve phoenix --claim {short}", f"nodes reject phoenix --claim {short}", made_at):
            assert text in shown
        assert claim["http_address"] in shown
        assert "Another machine claims to be node phoenix" in cli(frontend, "status").stdout
        plain = cli(frontend, "nodes", "approve", "phoenix")
        assert (plain.returncode, short in plain.stderr, "--claim" in plain.stderr) == (2, True, True)
        approved = cli(frontend, "nodes", "approve", "phoenix", "--claim", short)
        assert approved.returncode == 0, approved.stderr
        frontend.admin.wait_for_status("phoenix", "healthy")
        after = frontend.admin.nodes()["phoenix"]
        assert (after["id"], after["claims"]) == (node["id"], [])
    finally:
        second.kill()


def register(frontend: Frontend, source_address: str, **fields: Any) -> Any:
    body = {"address": "10.0.0.5:50051", "http_address": "10.0.0.5:50050", "token": TOKEN, **fields}
    headers = {"X-Forwarded-For": source_address}
    return call("POST", f"{frontend.url}/api/node/register", key=TOKEN, body=body, headers=headers)


def test_a_localai_worker_under_an_approved_name_from_elsewhere_gets_nothing(frontend: Frontend) -> None:
    first = register(frontend, "10.0.0.5", name="go-worker").json()
    assert (first["status"], bool(first["nats_jwt"])) == ("healthy", True)
    thief = register(frontend, "10.0.0.66", name="go-worker")
    assert (thief.status, thief.json()["status"], thief.json().get("nats_jwt")) == (201, "pending", None)
    assert thief.json()["id"] != first["id"]
    for source_address, status in (("10.0.0.5", 200), ("10.0.0.66", 401)):
        heartbeat = call(
            "POST", f"{frontend.url}/api/node/{first['id']}/heartbeat", key=TOKEN, body={},
            headers={"X-Forwarded-For": source_address},
        )  # fmt: skip
        assert heartbeat.status == status
    for verb in ("drain", "deregister"):
        answer = call(
            "POST", f"{frontend.url}/api/node/{first['id']}/{verb}", key=TOKEN, body={},
            headers={"X-Forwarded-For": "10.0.0.66"},
        )  # fmt: skip
        assert answer.status == 403
    claim = frontend.admin.nodes()["go-worker"]["claims"][0]
    assert (claim["address"], claim["localai"]) == ("10.0.0.66", True)
    rejected = cli(frontend, "nodes", "reject", "go-worker", "--claim", claim["id"])
    assert rejected.returncode == 0, rejected.stderr
    assert frontend.admin.nodes()["go-worker"]["claims"] == []
    assert register(frontend, "10.0.0.66", name="go-worker").status == 409
    assert register(frontend, "10.0.0.5", name="go-worker").json()["id"] == first["id"]


@pytest.mark.parametrize(
    "fields",
    [
        {"http_address": "127.0.0.1:19312"},
        {"http_address": "169.254.169.254:80"},
        {"http_address": "10.0.0.5:80/latest/meta-data?x="},
        {"address": "localhost:50051"},
    ],
    ids=["loopback", "metadata", "path", "localhost"],
)
def test_an_address_of_another_machine_is_rejected(frontend: Frontend, fields: dict[str, str]) -> None:
    answer = register(frontend, "10.0.0.77", name="ssrf", **fields)
    assert answer.status == 400
    assert "ssrf" not in frontend.admin.nodes()


@pytest.mark.parametrize("claim", ["nope", "x" * 100, "", None, 7])
def test_an_unknown_claim_is_rejected(frontend: Frontend, claim: Any) -> None:
    node = register(frontend, "10.0.0.9", name="plain").json()
    for verb in ("approve", "reject"):
        answer = frontend.admin.call("POST", f"/api/nodes/{node['id']}/{verb}", body={"claim": claim})
        assert answer.status in (400, 404, 422), (verb, answer.body)
    assert json.loads(frontend.admin.call("GET", f"/api/nodes/{node['id']}").body)["approved"]
