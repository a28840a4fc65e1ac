"""Everyday requests: names instead of ids, limits, labels, wrong input, logs and credentials."""

import json
from pathlib import Path
from typing import Any

import pytest

from corral.bus.client import connect_bus
from corral.bus.credentials import make_key
from corral.core.errors import Unavailable
from corral.system import SystemIds
from harness.ports import free_port
from harness.programs import Program, clean_environment, run_cli


def test_a_node_is_found_by_its_name(frontend: Any) -> None:
    node = frontend.register(name="by name").json()
    for path in (f"/api/nodes/{node['id']}", "/api/nodes/by%20name"):
        assert frontend.admin.call("GET", path).json()["id"] == node["id"]
    assert frontend.admin.call("POST", "/api/nodes/by%20name/approve").json()["id"] == node["id"]
    assert frontend.admin.call("PATCH", "/api/nodes/by%20name/labels", body={"room": "b2"}).json() == {"room": "b2"}
    assert frontend.admin.call("DELETE", "/api/nodes/by%20name").status == 200
    assert frontend.admin.call("GET", "/api/nodes/by%20name").status == 404


def test_limits_of_a_node_are_set_shown_and_reset(frontend: Any) -> None:
    frontend.register(name="small", total_ram=8 << 30, available_ram=4 << 30, total_vram=0)

    def cli(*words: str) -> str:
        environment = clean_environment(CORRAL_URL=frontend.admin.url, CORRAL_API_KEY=frontend.admin.key)
        done = run_cli("nodes", *words, environment=environment)
        return done.stdout or done.stderr

    assert cli("budget", "small", "50%") == "small: models may use 50% of its memory\n"
    shown = frontend.admin.call("GET", "/api/nodes/small").json()
    assert (shown["vram_budget"], shown["vram_budget_bytes"]) == ("50%", 4 << 30), "it has no GPU"
    assert "50% of its memory" in cli("show", "small")
    assert "write for example 80%" in cli("budget", "small", "much")
    assert cli("budget", "small", "none") == "small: models may use all of its memory\n"
    assert cli("limit", "small", "3") == "small: 3 replicas per model\n"
    assert "neither a number nor" in cli("limit", "small", "few")
    assert cli("limit", "small", "none") == "small: 1 replica per model\n"


@pytest.mark.parametrize("key", ["node.name", "node.replica-slots", "gpu.vendor", "gpu.vram"])
def test_detected_labels_cannot_be_changed(frontend: Any, key: str) -> None:
    node = frontend.register(name="labelled", labels={key: "set by the worker"}).json()
    for method in ("PUT", "PATCH"):
        answer = frontend.admin.call(method, f"/api/nodes/{node['id']}/labels", body={key: "x"})
        assert answer.status == 400
        assert key in answer.message
    shown = frontend.admin.call("GET", f"/api/nodes/{node['id']}").json()["labels"]
    assert shown["node.name"] == "labelled"
    assert shown["node.replica-slots"] == "1"


@pytest.mark.parametrize(
    ("method", "path", "raw", "words"),
    [
        ("POST", "/api/keys", b"{", "the body is not JSON"),
        ("POST", "/api/keys", b"{}", "name: is missing"),
        ("POST", "/api/keys", b'{"name":""}', "name: must not be empty"),
        ("POST", "/api/keys", b'{"name":7}', "name: must be a string"),
        ("POST", "/api/keys", b'{"name":"x","scope":"king"}', "scope: must be 'admin' or 'user'"),
        ("GET", "/api/audit?limit=many", None, "query.limit: must be a whole number"),
        ("GET", "/api/audit?limit=0", None, "query.limit: must be at least 1"),
    ],
)
def test_wrong_input_is_answered_in_plain_words(frontend: Any, method: str, path: str, raw: bytes, words: str) -> None:
    answer = frontend.admin.call(method, path, raw=raw)
    assert (answer.status, answer.message) == (400, words)


def test_every_change_is_logged_once(frontend: Any) -> None:
    node = frontend.register(name="logged").json()
    frontend.register(name="logged")
    frontend.admin.call("POST", f"/api/nodes/{node['id']}/approve")
    frontend.admin.call("GET", f"/api/nodes/{node['id']}")
    lines = frontend.program.output().splitlines()
    assert len([line for line in lines if "node.registered" in line and node["id"] in line]) == 1
    changes = [line for line in lines if "api.change" in line and node["id"] in line]
    assert len(changes) == 1
    assert "/approve" in changes[0]
    assert "key admin" in changes[0]


def test_doctor_accepts_ports_that_a_running_frontend_uses(frontend: Any) -> None:
    environment = clean_environment(CORRAL_DATA_DIR=str(frontend.data), CORRAL_BUS_PORT=str(frontend.nats.port))
    findings = json.loads(run_cli("doctor", "--json", environment=environment).stdout)
    assert [finding for finding in findings if finding["state"] == "problem"] == []


def test_an_untrusted_seed_is_reported(frontend: Any, tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.write_text(make_key("account", SystemIds().seed()).seed)
    secrets = {**frontend.nats.secrets(), "CORRAL_BUS_ACCOUNT_SEED_FILE": str(seed)}
    program = Program(
        "frontend", "--data-dir", str(tmp_path / "f"), "--listen", f"127.0.0.1:{free_port()}",
        log=tmp_path / "log", environment=clean_environment(**secrets),
    )  # fmt: skip
    assert program.wait(30) == 3
    assert "signed with a seed that this nats-server does not trust" in program.output()
    assert "bus_account_seed" in program.output()


async def test_missing_bus_credentials_are_reported(frontend: Any) -> None:
    with pytest.raises(Unavailable, match="requires credentials"):
        async with connect_bus(frontend.nats.options(None, inbox="_INBOX.x")):
            pass
