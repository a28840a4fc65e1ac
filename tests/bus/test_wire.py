"""Recorded bodies decode and encode as the wire contract says: absent stays absent, unknown is ignored."""

import json

import msgspec
import pytest

from corral.bus.messages import (
    CommandExtras,
    InstallRequest,
    ModelsRunningReply,
    NodesChanged,
    RunningModel,
    decode,
    encode,
)
from corral.bus.node_api import (
    HeartbeatExtras,
    HeartbeatRequest,
    NodeFacts,
    RegisterExtras,
    RegisterReply,
    RegisterReplyExtras,
    RegisterRequest,
    decode_facts,
    decode_heartbeat,
    decode_register,
    decode_register_reply,
)
from corral.core.backends.build import BuildRef
from corral.core.errors import InvalidInput

REGISTER = (
    b'{"name":"worker-1","address":"worker-1:50051","http_address":"worker-1:50050","total_vram":25769803776,'
    b'"available_vram":25769803776,"gpu_vendor":"nvidia","gpu_compute_capability":"8.9",'
    b'"capability":"nvidia-cuda-12","max_replicas_per_model":2,"total_disk":1000204886016,'
    b'"available_disk":650204886016,"total_ram":67430440960,"available_ram":60430440960,"token":"changeme",'
    b'"labels":{"tier":"fast","node.replica-slots":"2"}}'
)
REGISTERED = (
    b'{"id":"0c6a2b1e-5a1f-4b0e-9d0b-2f6f1b7d9a11","name":"worker-1","node_type":"backend","status":"healthy",'
    b'"created_at":"2026-08-01T10:00:00Z","nats_jwt":"eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ...",'
    b'"nats_user_seed":"SUA..."}'
)
HEARTBEAT = (
    b'{"available_vram":20401094656,"available_ram":58430440960,"total_disk":1000204886016,'
    b'"available_disk":648204886016}'
)
RUNNING = b'{"models":[{"model_id":"qwen3-4b","replica_index":0,"address":"127.0.0.1:50052"}]}'
KEY = "k" * 43


def same(left: bytes, right: bytes) -> bool:
    return bool(json.loads(left) == json.loads(right))


def test_a_go_workers_registration_is_read_field_by_field() -> None:
    read = decode_register(REGISTER)
    assert read == RegisterRequest(
        name="worker-1",
        address="worker-1:50051",
        http_address="worker-1:50050",
        node_type=None,
        token="changeme",
        total_vram=25769803776,
        available_vram=25769803776,
        total_ram=67430440960,
        available_ram=60430440960,
        total_disk=1000204886016,
        available_disk=650204886016,
        gpu_vendor="nvidia",
        gpu_compute_capability="8.9",
        capability="nvidia-cuda-12",
        labels={"tier": "fast", "node.replica-slots": "2"},
        max_replicas_per_model=2,
        vram_budget=None,
        corral=None,
    )


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        pytest.param(REGISTER, RegisterRequest, id="register"),
        pytest.param(REGISTERED, RegisterReply, id="registered"),
        pytest.param(HEARTBEAT, HeartbeatRequest, id="heartbeat"),
        pytest.param(RUNNING, ModelsRunningReply, id="models-running"),
        pytest.param(b'{"models":[]}', ModelsRunningReply, id="nothing-running"),
        pytest.param(b'{"models":[],"error":"not now"}', ModelsRunningReply, id="running-unknown"),
        pytest.param(b"{}", HeartbeatRequest, id="a-beat-that-tells-nothing"),
    ],
)
def test_what_is_read_is_written_back_the_same(recorded: bytes, kind: type[msgspec.Struct]) -> None:
    assert same(encode(msgspec.json.decode(recorded, type=kind)), recorded)


@pytest.mark.parametrize(
    "absent", ["total_vram", "available_vram", "total_ram", "available_ram", "total_disk", "available_disk"]
)
def test_an_absent_number_is_unknown_and_a_zero_is_zero(absent: str) -> None:
    body = json.loads(REGISTER)
    del body[absent]
    assert getattr(decode_register(json.dumps(body).encode()), absent) is None
    body[absent] = 0
    read = decode_register(json.dumps(body).encode())
    assert getattr(read, absent) == 0
    assert json.loads(encode(read))[absent] == 0


def test_a_heartbeat_keeps_zero_and_absent_apart() -> None:
    read = decode_heartbeat(b'{"available_disk":0}')
    assert read == HeartbeatRequest(available_disk=0)
    assert encode(read) == b'{"available_disk":0}'


def test_unknown_fields_are_ignored_at_every_depth() -> None:
    body = json.loads(REGISTER)
    body |= {"of_tomorrow": [1, {"a": None}]}
    body["corral"] = {"node_key": KEY, "instance": "i", "more": 1, "facts": {"version": "9", "more": {"x": 1}}}
    read = decode_register(json.dumps(body).encode())
    assert read.corral == RegisterExtras(node_key=KEY, instance="i", facts=NodeFacts(version="9"))
    assert decode_heartbeat(b'{"x":1,"corral":{"instance":"i","y":2}}').corral == HeartbeatExtras(instance="i")
    assert decode_register_reply(REGISTERED[:-1] + b',"api_token":"t"}') == decode_register_reply(REGISTERED)


def test_a_localai_frontends_reply_is_read_without_corrals_fields() -> None:
    read = decode_register_reply(REGISTERED)
    assert (read.id, read.status, read.nats_user_seed) == ("0c6a2b1e-5a1f-4b0e-9d0b-2f6f1b7d9a11", "healthy", "SUA...")
    assert read.corral is None


def test_a_pending_answer_has_no_credential_fields_at_all() -> None:
    reply = RegisterReply(id="i", name="n", node_type="backend", status="pending", created_at="2026-08-01T10:00:00Z")
    assert set(json.loads(encode(reply))) == {"id", "name", "node_type", "status", "created_at"}


def test_what_corral_adds_stays_in_its_own_field() -> None:
    request = RegisterRequest(name="n", address="a:1", corral=RegisterExtras(node_key=KEY, instance="i"))
    assert json.loads(encode(request)) == {
        "name": "n",
        "address": "a:1",
        "corral": {"node_key": KEY, "instance": "i"},
    }
    welcome = RegisterReplyExtras(epoch=3, credential_ttl_s=3600.0)
    assert json.loads(encode(welcome)) == {"epoch": 3, "credential_ttl_s": 3600.0}


def test_a_running_model_without_an_address_has_none() -> None:
    read = msgspec.json.decode(b'{"models":[{"model_id":"m","replica_index":1}]}', type=ModelsRunningReply)
    assert read.models == [RunningModel(model_id="m", replica_index=1, address=None)]
    assert same(encode(read), b'{"models":[{"model_id":"m","replica_index":1}]}')


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"name":"","address":"a"}', id="empty-name"),
        pytest.param(b'{"address":"a"}', id="no-name"),
        pytest.param(b'{"name":"%s"}' % (b"n" * 256), id="long-name"),
        pytest.param(b'{"name":"n","total_ram":-1}', id="negative-bytes"),
        pytest.param(b'{"name":"n","total_ram":9223372036854775808}', id="more-bytes-than-fit"),
        pytest.param(b'{"name":"n","total_ram":"1"}', id="bytes-as-text"),
        pytest.param(b'{"name":"n","max_replicas_per_model":9223372036854775808}', id="more-replicas-than-fit"),
        pytest.param(b'{"name":"n","labels":{"a":1}}', id="label-not-text"),
        pytest.param(b'{"name":"n","corral":{"node_key":"short","instance":"i"}}', id="guessable-key"),
        pytest.param(
            b'{"name":"n","corral":{"node_key":"%s","instance":"i","bus_public_key":"UABC"}}' % KEY.encode(),
            id="no-bus-key",
        ),
        pytest.param(b"[]", id="no-object"),
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"name":"n"', id="cut-off"),
        pytest.param(b'{"name":"\xff"}', id="not-utf-8"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_edge(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_register(body)


def test_facts_that_were_not_found_out_are_absent_not_empty() -> None:
    assert decode_facts(b"{}") == NodeFacts()
    assert encode(NodeFacts()) == b"{}"
    assert json.loads(encode(NodeFacts(cpu_count=0))) == {"cpu_count": 0}


def test_corrals_own_messages_round_trip() -> None:
    for message in (ModelsRunningReply(models=[], epoch=2), NodesChanged(frontend="f")):
        assert msgspec.json.decode(encode(message), type=type(message)) == message


def test_how_to_start_a_backend_travels_with_the_command() -> None:
    manifest = {"protocol": "openai", "start": ["{dir}/server", "--port={port}"], "options": {"threads": ["-t"]}}
    build = BuildRef(name="cpu-engine", uris=("quay.io/a/b",), manifest=json.dumps(manifest))
    request = InstallRequest(backend="engine", corral=CommandExtras(build=build))
    assert decode(encode(request), InstallRequest) == request
