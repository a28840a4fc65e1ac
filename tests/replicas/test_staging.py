"""Weights that lie on the frontend's machine reach the worker, whole and once; a delete takes them away again."""

from harness.herd import Herd, ask
from harness.tiny_model import Shelf
from harness.waiting import wait_until

CONFIG = "name: mine\nbackend: llama-cpp\ncontext_size: 256\nparameters: {model: mine/weights.gguf}\n"


def test_weights_of_the_frontend_are_sent_verified_and_deleted_with_the_model(herd: Herd, shelf: Shelf) -> None:
    admin = herd.start_frontend()
    herd.start_worker("w1")
    source = herd.directory / "a" / "models" / "mine" / "weights.gguf"
    source.parent.mkdir(parents=True)
    source.write_bytes(shelf.content)
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    answer = ask(admin, "mine")
    assert answer.status == 200, answer.body
    target = herd.directory / "w1" / "models" / "mine" / "weights.gguf"
    assert target.read_bytes() == shelf.content
    first = target.stat().st_ino
    assert admin.call("POST", "/api/models/mine/unload").status == 200
    herd.wait_for_ready("mine", 0)
    wait_until(lambda: not herd.replicas("mine"), what="it is gone")
    assert ask(admin, "mine").status == 200
    assert target.stat().st_ino == first, "what is there is not sent again"
    assert admin.call("DELETE", "/api/models/mine").status == 200
    wait_until(lambda: not target.exists(), what="its files are deleted on the node", within_s=60)
    assert not herd.processes("w1")


def test_a_model_whose_weights_are_nowhere_fails_with_the_cause_and_does_not_hot_loop(herd: Herd) -> None:
    admin = herd.start_frontend()
    herd.start_worker("w1")
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    answer = ask(admin, "mine")
    assert answer.status == 503
    assert "mine" in answer.message
    again = ask(admin, "mine")
    assert again.status == 503
    why = admin.call("GET", "/api/why/models/mine").json()
    assert [load["attempts"] for load in why["loads"]] == [1], "the second request got the cause, not another try"
