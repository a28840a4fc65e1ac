"""`/api/node/*`: registration, heartbeats and deregistration, by LocalAI's workers and by our own."""

import time
from typing import Any

import pytest

from corral.bus.credentials import read_expiry_s
from harness.frontend import TOKEN
from harness.programs import call, clean_environment, run_cli

KEY = "k" * 43


def corral_claim(key: str = KEY, instance: str = "one", **more: Any) -> dict[str, Any]:
    return {"node_key": key, "instance": instance, **more}


def beat(frontend: Any, node_id: str, bearer: str, **body: Any) -> Any:
    return call("POST", f"{frontend.url}/api/node/{node_id}/heartbeat", key=bearer, body=body)


# As a LocalAI worker sends it (spec/node-http-api.md 1.1).
LOCALAI = {
    "name": "worker-1",
    "address": "worker-1:50051",
    "http_address": "worker-1:50050",
    "total_vram": 25769803776,
    "available_vram": 25769803776,
    "gpu_vendor": "nvidia",
    "gpu_compute_capability": "8.9",
    "capability": "nvidia-cuda-12",
    "max_replicas_per_model": 2,
    "total_disk": 1000204886016,
    "available_disk": 650204886016,
    "total_ram": 67430440960,
    "available_ram": 60430440960,
    "labels": {"tier": "fast", "node.replica-slots": "2"},
    "some_future_field": [1, 2, 3],
}


def test_the_command_for_a_localai_worker_names_frontend_bus_and_token(frontend: Any) -> None:
    environment = clean_environment(CORRAL_URL=frontend.url, CORRAL_API_KEY=frontend.admin.key)
    shown = run_cli("join-command", "--localai", environment=environment)
    assert shown.stdout == (
        f"local-ai worker --register-to {frontend.url} --nats-url {frontend.nats.url}"
        f" --registration-token {TOKEN} --nats-require-auth\n"
    ), shown.stderr


def test_a_localai_worker_registers_sends_heartbeats_and_leaves(open_frontend: Any) -> None:
    answer = open_frontend.register(**LOCALAI)
    assert answer.status == 201, answer.body
    reply = answer.json()
    assert (reply["name"], reply["node_type"], reply["status"]) == ("worker-1", "backend", "healthy")
    assert reply["nats_user_seed"].startswith("SU")
    assert read_expiry_s(reply["nats_jwt"]) is not None
    node_id = reply["id"]
    sent = {"available_vram": 20401094656, "available_ram": 58430440960, "available_disk": 648204886016}
    assert beat(open_frontend, node_id, "test-registration-token", **sent).json() == {"message": "heartbeat received"}
    node = open_frontend.admin.nodes()["worker-1"]
    assert {key: node[key] for key in sent} == sent
    assert node["total_disk"] == LOCALAI["total_disk"]
    assert node["labels"]["gpu.vram"] == "24GB"
    assert node["labels"]["tier"] == "fast"
    for verb, message in (
        ("drain", "node set to draining"),
        ("resume", "node resumed"),
        ("deregister", "node set to offline"),
    ):
        said = call("POST", f"{open_frontend.url}/api/node/{node_id}/{verb}", key="test-registration-token")
        assert (said.status, said.json()) == (200, {"message": message})
    assert open_frontend.admin.nodes()["worker-1"]["status"] == "offline"
    again = open_frontend.register(**LOCALAI).json()
    assert again["id"] == node_id
    assert again["nats_user_seed"] != reply["nats_user_seed"]


@pytest.mark.parametrize(
    ("bearer", "token"),
    [("wrong", "test-registration-token"), ("test-registration-token", "wrong"), ("test-registration-token", None)],
    ids=["wrong-header", "wrong-body", "no-body-token"],
)
def test_a_localai_worker_needs_the_token_in_header_and_body(frontend: Any, bearer: str, token: str | None) -> None:
    answer = frontend.register(name="intruder", bearer=bearer, token=token)
    assert answer.status == 401
    assert "registration token" in answer.message
    assert "intruder" not in frontend.admin.nodes()


def test_without_a_credential_nothing_is_answered(frontend: Any) -> None:
    assert frontend.register(bearer=None).status == 401


@pytest.mark.parametrize("raw", [b"not json", b"{}", b'{"name": "no-address"}', b'{"name": "*", "address": "h:1"}'])
def test_with_a_wrong_token_other_mistakes_are_not_reported(frontend: Any, raw: bytes) -> None:
    answer = call("POST", f"{frontend.url}/api/node/register", key="wrong", raw=raw)
    assert (answer.status, answer.message) == (401, "invalid registration token")


def test_approval_cannot_be_bypassed_with_the_token(frontend: Any) -> None:
    node_id = frontend.register(name="stranger").json()["id"]
    for verb in ("deregister", "resume", "drain", "resume"):
        call("POST", f"{frontend.url}/api/node/{node_id}/{verb}", key="test-registration-token")
        reply = frontend.register(name="stranger").json()
        assert reply["status"] == "pending"
        assert "nats_jwt" not in reply
    assert frontend.admin.nodes()["stranger"]["status"] == "pending"


def test_registering_again_keeps_the_id_and_what_an_administrator_set(open_frontend: Any) -> None:
    name = "kept"
    node_id = open_frontend.register(name=name, corral=corral_claim("a" * 43)).json()["id"]
    admin = open_frontend.admin
    path = f"/api/nodes/{node_id}"
    assert admin.call("PUT", f"{path}/labels", body={"room": "b2"}).json() == {"room": "b2"}
    assert admin.call("PUT", f"{path}/max-replicas-per-model", body={"value": 3}).json() == {
        "max_replicas_per_model": 3
    }
    assert admin.call("PUT", f"{path}/vram-budget", body={"value": "50%"}).json() == {"vram_budget": "50%"}
    assert admin.call("POST", f"{path}/drain").status == 200
    again = open_frontend.register(
        name=name, corral=corral_claim("a" * 43, "two"), labels={"tier": "slow"}, total_vram=8 << 30,
        available_vram=8 << 30, max_replicas_per_model=1, vram_budget="90%",
    )  # fmt: skip
    assert again.json()["id"] == node_id
    node = admin.nodes()[name]
    assert node["operator_labels"] == {"room": "b2"}
    assert node["worker_labels"] == {"tier": "slow"}
    assert (node["max_replicas_per_model"], node["vram_budget"]) == (3, "50%")
    assert node["available_vram"] == 4 << 30
    assert node["draining"]
    assert admin.call("DELETE", f"{path}/labels/room").status == 204
    assert admin.call("DELETE", f"{path}/vram-budget").json() == {"reset": True}
    assert admin.nodes()[name]["vram_budget"] == "90%"


def test_one_nodes_secret_does_not_act_for_another(open_frontend: Any) -> None:
    mine = open_frontend.register(name="mine", corral=corral_claim("m" * 43)).json()["id"]
    theirs = open_frontend.register(name="theirs", corral=corral_claim("t" * 43)).json()["id"]
    assert beat(open_frontend, mine, "m" * 43, corral={"instance": "one"}).status == 200
    for bearer in ("m" * 43, "test-registration-token", "wrong"):
        assert beat(open_frontend, theirs, bearer, corral={"instance": "one"}).status == 401
        for verb in ("drain", "resume", "deregister"):
            said = call("POST", f"{open_frontend.url}/api/node/{theirs}/{verb}", key=bearer)
            assert said.status == 403, said.body
        listed = call("GET", f"{open_frontend.url}/api/node/{theirs}/models", key=bearer)
        assert listed.status == 403
    assert open_frontend.admin.nodes()["theirs"]["status_reason"] != "deregistered by its worker"


def ask_for_blob(frontend: Any, node_id: str, bearer: str, instance: str = "one", **claim: Any) -> Any:
    return call(
        "POST", f"{frontend.url}/api/node/{node_id}/downloads", key=bearer,
        body={"blobs": [{"digest": f"sha256:{'0' * 64}", **claim}]}, headers={"X-Corral-Instance": instance},
    )  # fmt: skip


def test_only_approved_corral_workers_share_downloads(frontend: Any) -> None:
    stranger = frontend.register(name="pending", corral=corral_claim("s" * 43)).json()["id"]
    assert ask_for_blob(frontend, stranger, "s" * 43).status == 403
    member = frontend.register(name="sharing", corral=corral_claim("m" * 43)).json()["id"]
    assert frontend.admin.call("POST", f"/api/nodes/{member}/approve").status == 200
    assert ask_for_blob(frontend, stranger, "s" * 43, bytes_done=1 << 40, rate_bytes_per_s=1e12).status == 403
    assert ask_for_blob(frontend, member, "s" * 43).status == 403
    assert ask_for_blob(frontend, member, "m" * 43, instance="older").status == 409
    assert ask_for_blob(frontend, member, "m" * 43).json()["blobs"][0]["leads"] is True
    localai = frontend.register(name="sharing-localai").json()["id"]
    assert frontend.admin.call("POST", f"/api/nodes/{localai}/approve").status == 200
    assert ask_for_blob(frontend, localai, "test-registration-token").status == 403


def test_impossible_figures_of_a_download_are_rejected(open_frontend: Any) -> None:
    node = open_frontend.register(name="figures", corral=corral_claim("i" * 43)).json()["id"]
    for claim in ({"rate_bytes_per_s": 1e15}, {"bytes_done": 1 << 62}, {"bytes_done": -1}):
        assert ask_for_blob(open_frontend, node, "i" * 43, **claim).status == 400


def test_an_outdated_process_is_fenced_and_cannot_deregister_its_successor(open_frontend: Any) -> None:
    key = "f" * 43
    node_id = open_frontend.register(name="twice", corral=corral_claim(key, "old")).json()["id"]
    assert open_frontend.register(name="twice", corral=corral_claim(key, "new")).json()["corral"]["epoch"] == 2
    assert beat(open_frontend, node_id, key, corral={"instance": "old"}).status == 409
    assert beat(open_frontend, node_id, key, corral={"instance": "new"}).status == 200
    gone = call(
        "POST", f"{open_frontend.url}/api/node/{node_id}/deregister", key=key, headers={"X-Corral-Instance": "old"}
    )
    assert gone.status == 409
    assert open_frontend.admin.nodes()["twice"]["status"] != "offline"
    assert "older process" in open_frontend.admin.nodes()["twice"]["conflict"]["message"]


def test_a_heartbeat_for_an_unknown_node_is_rejected(frontend: Any) -> None:
    assert beat(frontend, "no-such-node", "whatever").status == 404


@pytest.mark.parametrize("raw", [b"", b"null", b"{", b"\xff\xfe", b'{"available_vram":"much"}', b'{"total_disk":-1}'])
def test_an_unreadable_heartbeat_still_shows_that_the_node_is_there(open_frontend: Any, raw: bytes) -> None:
    node_id = open_frontend.register(name="mumbler", total_disk=100, available_disk=50).json()["id"]
    answer = call("POST", f"{open_frontend.url}/api/node/{node_id}/heartbeat", key="test-registration-token", raw=raw)
    assert answer.status == 200
    assert open_frontend.admin.nodes()["mumbler"]["available_disk"] == 50


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"name": "two\nlines"}, "control characters"),
        ({"name": "   "}, "blank"),
        ({"name": "escape\x1b[2J"}, "control characters"),
        ({"name": "nodes.*"}, "wildcard"),
        ({"name": "nodes.>"}, "wildcard"),
        ({"name": "-rf"}, "dash"),
        ({"name": "0c6a2b1e-5a1f-4b0e-9d0b-2f6f1b7d9a11"}, "form of a node id"),
        ({"node_type": "toaster"}, "toaster"),
        ({"address": None}, "address"),
        ({"address": "x" * 513}, "address"),
        ({"total_vram": -1}, "total_vram"),
        ({"total_vram": "lots"}, "total_vram"),
        ({"vram_budget": "half"}, "memory budget"),
        ({"labels": {"a b": "c"}}, "label"),
        ({"corral": {"node_key": "short", "instance": "x"}}, "node_key"),
        ({"corral": {"node_key": KEY, "instance": "x", "bus_public_key": "not a key"}}, "bus_public_key"),
    ],
)
def test_an_invalid_registration_is_rejected_with_the_field(frontend: Any, fields: dict[str, Any], words: str) -> None:
    before = frontend.admin.nodes()
    answer = frontend.register(**fields)
    assert answer.status == 400, answer.body
    assert answer.json()["error"]["type"] == "node_error"
    assert words in answer.message
    assert frontend.admin.nodes().keys() == before.keys()


@pytest.mark.parametrize("name", ["nodes.x", "a b", "../../etc", "Ærø's box", "'; DROP TABLE nodes; '"])
def test_a_name_may_contain_anything_because_it_is_never_part_of_a_subject(open_frontend: Any, name: str) -> None:
    reply = open_frontend.register(name=name).json()
    assert reply["name"] == name
    node = open_frontend.admin.nodes()[name]
    assert node["id"] == reply["id"]
    assert open_frontend.admin.call("DELETE", f"/api/nodes/{node['id']}").status == 200


def test_what_was_not_reported_is_unknown_and_not_zero(open_frontend: Any) -> None:
    open_frontend.register(name="silent")
    node = open_frontend.admin.nodes()["silent"]
    unknown = ("total_vram", "available_vram", "total_ram", "available_ram", "total_disk", "available_disk")
    assert {node[field] for field in unknown} == {None}


def test_an_agent_needs_no_address_and_is_judged_by_its_heartbeat_alone(open_frontend: Any) -> None:
    node_id = open_frontend.register(name="agent-1", node_type="agent", address=None).json()["id"]
    assert beat(open_frontend, node_id, "test-registration-token").status == 200
    open_frontend.admin.wait_for_status("agent-1", "healthy")
    open_frontend.admin.wait_for_status("agent-1", "offline")


def test_a_worker_that_never_appears_on_the_bus_is_never_healthy(open_frontend: Any) -> None:
    node_id = open_frontend.register(name="half").json()["id"]
    for _ in range(5):
        beat(open_frontend, node_id, "test-registration-token")
        assert open_frontend.admin.nodes()["half"]["status"] == "unhealthy"


def test_the_audit_log_names_nodes_also_after_they_are_removed(open_frontend: Any) -> None:
    node_id = open_frontend.register(**{**LOCALAI, "name": "short-lived"}).json()["id"]
    admin = open_frontend.admin
    assert admin.call("DELETE", f"/api/nodes/{node_id}").status in (200, 204)
    entries = [entry for entry in admin.call("GET", "/api/audit").json() if entry["subject"] == node_id]
    assert {"node.registered", "node.removed"} <= {entry["action"] for entry in entries}
    assert all(entry["names"] == {node_id: "short-lived"} for entry in entries)
    shown = run_cli("audit", environment=clean_environment(CORRAL_URL=open_frontend.url, CORRAL_API_KEY=admin.key))
    assert f" short-lived ({node_id[:8]}) " in shown.stdout, shown


def test_a_clock_that_is_off_is_a_condition_of_the_node(open_frontend: Any) -> None:
    joined = open_frontend.register(**{**LOCALAI, "name": "skewed", "corral": corral_claim()}).json()
    now_ms = int(time.time() * 1000)
    for off_s, kinds in ((0, []), (1200, ["clock_skew"]), (-1200, ["clock_skew"]), (30, [])):
        reported = {"instance": "one", "sent_at_ms": now_ms + off_s * 1000, "conditions": []}
        assert beat(open_frontend, joined["id"], KEY, corral=reported).status == 200
        found = call("GET", f"{open_frontend.url}/api/nodes/{joined['id']}", key=open_frontend.admin.key).json()
        assert [condition["kind"] for condition in found["conditions"]] == kinds
