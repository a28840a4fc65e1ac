"""Weights that lie on the frontend's machine reach the worker, whole and once; a delete takes them away again."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.cluster import Cluster, Haste, ask
from harness.nats import Nats
from harness.programs import call
from harness.tiny_model import Shelf, write_adapter
from harness.waiting import wait_until

CONFIG = "name: mine\nbackend: llama-cpp\ncontext_size: 256\nparameters: {model: mine/weights.gguf}\n"


def test_weights_of_the_frontend_are_sent_verified_and_deleted_with_the_model(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    source = cluster.directory / "a" / "models" / "mine" / "weights.gguf"
    source.parent.mkdir(parents=True)
    source.write_bytes(shelf.content)
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    answer = ask(admin, "mine")
    assert answer.status == 200, answer.body
    target = cluster.directory / "w1" / "models" / "mine" / "weights.gguf"
    assert target.read_bytes() == shelf.content
    first = target.stat().st_ino
    assert admin.call("POST", "/api/models/mine/unload").status == 200
    cluster.wait_for_ready("mine", 0)
    wait_until(lambda: not cluster.replicas("mine"), what="it is gone")
    assert ask(admin, "mine").status == 200
    assert target.stat().st_ino == first, "what is there is not sent again"
    assert admin.call("POST", "/api/models/mine/unload").status == 200
    wait_until(lambda: not cluster.replicas("mine"), what="it is gone again")
    replaced = shelf.content + b"\0" * 64
    (source.parent / "new").write_bytes(replaced)
    (source.parent / "new").rename(source)
    assert ask(admin, "mine").status == 200
    assert target.read_bytes() == replaced, "what was replaced is sent"
    assert admin.call("DELETE", "/api/models/mine").status == 200
    wait_until(lambda: not target.exists(), what="its files are deleted on the node", within_s=60)
    assert not cluster.processes("w1")


def test_an_engine_that_was_installed_before_gets_companions_and_options_too(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    source = cluster.directory / "a" / "models" / "mine"
    source.mkdir(parents=True)
    for name in ("weights.gguf", "draft.gguf"):
        (source / name).write_bytes(shelf.content)
    write_adapter(source / "lora.gguf")
    companions = "threads: 1\ndraft_model: mine/draft.gguf\nlora_adapter: mine/lora.gguf\nlora_scale: 0.5\n"
    assert admin.call("POST", "/api/models", body={"config": CONFIG + companions}).status == 201
    answer = ask(admin, "mine", max_tokens=30)
    assert answer.status == 200, answer.body
    assert answer.json()["timings"]["draft_n"] > 0, "the draft guesses"
    [engine] = cluster.engines("w1")
    models = cluster.directory / "w1" / "models" / "mine"
    wanted = {"--threads=1", f"--draft-model={models}/draft.gguf", f"--lora-adapter={models}/lora.gguf"}
    assert {*wanted, "--lora-scale=0.5"} <= {*psutil.Process(engine).cmdline()}


def test_adapters_with_commas_in_their_names_are_read_each_with_its_scale(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    source = cluster.directory / "a" / "models" / "mine"
    source.mkdir(parents=True)
    (source / "weights.gguf").write_bytes(shelf.content)
    for name in ("one, two.gguf", "three.gguf"):
        write_adapter(source / name)
    adapters = "lora_adapters: ['mine/one, two.gguf', mine/three.gguf]\nlora_scales: [0.25, 0.5]\n"
    assert admin.call("POST", "/api/models", body={"config": CONFIG + adapters}).status == 201
    answer = ask(admin, "mine")
    assert answer.status == 200, answer.body
    [(address, token)] = cluster.read_sql("SELECT address, token FROM replicas")
    read = call("GET", f"http://{address}/lora-adapters", headers={"Authorization": f"Bearer {token}"})
    models = cluster.directory / "w1" / "models" / "mine"
    assert [(one["path"], one["scale"]) for one in read.json()] == [
        (f"{models}/one, two.gguf", 0.25),
        (f"{models}/three.gguf", 0.5),
    ]


def test_a_model_whose_weights_are_nowhere_fails_with_the_cause_and_does_not_hot_loop(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    answer, haste = ask(admin, "mine"), Haste(admin, "mine")
    assert answer.status == 503
    assert "mine" in answer.message
    assert "No such file" in answer.message
    assert not any(inside in answer.message for inside in ("Traceback", "\n", str(cluster.directory))), "S-16"
    whole = admin.call("GET", "/api/why/models/mine").json()["backoffs"][0]["error"]
    assert "failed to load model" in whole, "administrators see all of the engine's last output"
    assert len(whole.splitlines()) > 5
    again = ask(admin, "mine")
    assert again.status == 503
    haste.check()


@pytest.fixture
def lone_cluster(tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    """On one database: what is shown here touches none."""
    running = Cluster(tmp_path, nats)
    yield running
    running.stop()


def test_with_a_shared_directory_nothing_is_moved_and_what_is_missing_is_said(
    lone_cluster: Cluster, shelf: Shelf
) -> None:
    cluster = lone_cluster
    admin = cluster.start_frontend("a", "--shared-models")
    cluster.start_worker("w1")
    shared = cluster.directory / "w1" / "models" / "tiny"
    shared.mkdir()
    (shared / "weights.gguf").write_bytes(shelf.content)
    taken = shelf.gets
    for config in (shelf.config("tiny"), CONFIG):
        assert admin.call("POST", "/api/models", body={"config": config}).status == 201
    assert ask(admin, "tiny").status == 200
    assert shelf.gets == taken
    refused = ask(admin, "mine")
    assert refused.status == 503
    assert "mine/weights.gguf is not in the models directory of w1, which is configured as shared" in refused.message
