"""Keys and models are the same on every frontend, within seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.machine_speed import promised
from harness.nats import Nats
from harness.postgres import Postgres
from harness.programs import Admin, call
from harness.proxy import Proxy, ProxyThread
from harness.waiting import wait_until

TINY = "name: tiny\nbackend: llama-cpp\nparameters: {model: tiny.gguf}\n"


@pytest.fixture
def two(tmp_path: Path, nats: Nats) -> Iterator[tuple[Admin, Admin]]:
    cluster = Cluster(tmp_path, nats)
    yield cluster.start_frontend("a"), cluster.start_frontend("b")
    cluster.stop()


def models_at(admin: Admin, key: str) -> tuple[int, list[str]]:
    answer = call("GET", f"{admin.url}/v1/models", key=key)
    return answer.status, [item["id"] for item in answer.json()["data"]] if answer.status == 200 else []


def test_a_key_created_limited_and_revoked_on_one_frontend_is_so_on_the_other(two: tuple[Admin, Admin]) -> None:
    one, other = two
    for name in ("tiny", "big"):
        assert (
            one.call("POST", "/api/models", body={"config": TINY.replace("name: tiny", f"name: {name}")}).status == 201
        )
    made = one.call("POST", "/api/keys", body={"name": "app", "models": ["tiny"]}).json()
    with promised("a key's way to the other frontend", within_s=5):
        wait_until(lambda: models_at(other, made["key"]) == (200, ["tiny"]) or None, what="the key is known")
    assert one.call("PUT", "/api/keys/app/models", body={"models": None}).status == 200
    with promised("a change's way to the other frontend", within_s=5):
        wait_until(lambda: models_at(other, made["key"]) == (200, ["big", "tiny"]) or None, what="the list is gone")
    assert one.call("DELETE", "/api/keys/app").status == 200
    dead = (401, 401)
    with promised("the key's end", within_s=5):
        wait_until(
            lambda: (models_at(one, made["key"])[0], models_at(other, made["key"])[0]) == dead or None,
            what="the key is dead",
        )


@pytest.mark.postgres
def test_a_revoked_key_stops_working_on_a_frontend_that_lost_the_store_or_everything(
    tmp_path: Path, nats: Nats, postgres: Postgres
) -> None:
    cluster = Cluster(tmp_path, nats, postgres.create("cut_off_keys"))
    bus_line = ProxyThread(nats.port)
    lines = [bus_line]
    try:
        one = cluster.start_frontend("a")
        store_line = cluster.put_line_before_store()
        assert store_line is not None
        lines.append(store_line)
        cut_off = cluster.start_frontend("b", "--bus", f"nats://127.0.0.1:{bus_line.port}")
        keys = {name: one.call("POST", "/api/keys", body={"name": name}).json()["key"] for name in ("x", "y")}

        def status(name: str) -> int:
            return call("GET", f"{cut_off.url}/v1/models", key=keys[name]).status

        wait_until(lambda: status("x") == status("y") == 200, what="both are known")
        # Only this frontend has lost the store: another one reports which keys are valid.
        store_line.do(Proxy.refuse)
        assert one.call("DELETE", "/api/keys/x").status == 200
        with promised("the end of a revoked key without the store", within_s=20):
            wait_until(lambda: status("x") != 200, what="the revoked key is dead", within_s=60)
        assert status("y") == 200
        # And now it hears nobody at all.
        bus_line.do(Proxy.refuse)
        assert one.call("DELETE", "/api/keys/y").status == 200
        with promised("the end of a revoked key without anything", within_s=60):
            wait_until(lambda: status("y") != 200, what="the revoked key is dead", within_s=90)
        assert call("GET", f"{cut_off.url}/healthz").status == 200
    finally:
        cluster.stop()
        for line in lines:
            line.stop()


def test_a_model_added_on_one_frontend_is_there_on_the_other_within_a_second(two: tuple[Admin, Admin]) -> None:
    one, other = two
    assert one.call("POST", "/api/models", body={"config": TINY + "aliases: [small]\n"}).status == 201
    with promised("a model's way to the other frontend", within_s=2):
        wait_until(lambda: sorted(models_at(other, other.key)[1]) == ["small", "tiny"] or None, what="both")
    first = one.call("GET", "/api/models/small").json()
    edited = other.call(
        "PUT", "/api/models/tiny", body={"config": TINY}, headers={"If-Match": f'"{first["revision"]}"'}
    )
    assert edited.status == 200
    late = one.call("PUT", "/api/models/tiny", body={"config": TINY}, headers={"If-Match": first["revision"]})
    assert late.status == 409
    assert one.call("DELETE", "/api/models/tiny").status == 200
    with promised("a removal's way to the other frontend", within_s=2):
        wait_until(lambda: models_at(other, other.key)[1] == [] or None, what="the model is gone")
