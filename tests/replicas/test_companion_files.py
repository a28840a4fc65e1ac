"""A model of several files, of a directory, and with companions: everything lies where its backend is told it lies."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import ADMIN_KEY, Cluster, Haste, ask
from harness.databases import BOTH
from harness.gated_files import GatedFiles
from harness.localai_backend import write_localai_backend
from harness.nats import Nats
from harness.programs import Admin, Answer, clean_environment
from harness.waiting import wait_until

FILES = {
    "horse/model.gguf": b"the weights",
    "horse/eyes.gguf": b"a projector",
    "horse/draft.gguf": b"a small one",
    "horse/lora.bin": b"an adapter",
    "horse/other.bin": b"another adapter",
    "horse/base.bin": b"what it adapts",
    "horse/tokenizer.json": b"tokens",
    "vae.safetensors": b"named by an option",
}
CONFIG = """
name: horse
backend: echo
parameters: {model: horse/model.gguf, tokenizer: horse/tokenizer.json}
mmproj: horse/eyes.gguf
draft_model: horse/draft.gguf
lora_adapter: horse/lora.bin
lora_adapters: [horse/other.bin]
lora_base: horse/base.bin
template: {use_tokenizer_template: true}
options: [read, 'vae_file:vae.safetensors'%s]
"""
READ = {
    "ModelFile": "the weights",
    "MMProj": "a projector",
    "DraftModel": "a small one",
    "LoraAdapter": "an adapter",
    "LoraAdapters": ["another adapter"],
    "LoraBase": "what it adapts",
    "Tokenizer": "tokens",
    "vae_file": "named by an option",
}


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    store = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    running = Cluster(tmp_path, nats, store)
    running.start_frontend()
    write_localai_backend(tmp_path / "system" / "echo")
    running.start_worker("w1", "--system-backends-dir", str(tmp_path / "system"))
    yield running
    running.stop()


def put(directory: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def add(admin: Admin, config: str) -> None:
    added = admin.call("POST", "/api/models", body={"config": config})
    assert added.status == 201, added.body


def files_of(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return json.loads(answer.json()["choices"][0]["message"]["content"])


def question(word: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": word}]}


def ask_impatiently(admin: Admin, model: str) -> Answer:
    body = {"model": model, **question("hello")}
    return admin.call("POST", "/v1/chat/completions", body=body, headers={"X-Corral-Load-Wait": "1"}, within_s=60)


def load_status(admin: Admin, model: str) -> dict[str, Any]:
    answer = admin.call("GET", f"/api/models/{model}/load-status")
    found: dict[str, Any] = answer.json() if answer.status == 200 else {}
    return found


def loading_file(admin: Admin, model: str, index: int) -> dict[str, Any] | None:
    status = load_status(admin, model)
    return status if status.get("file_index") == index else None


def test_companions_are_sent_and_their_backend_reads_them_all(cluster: Cluster) -> None:
    admin = cluster.admin()
    put(cluster.directory / "a" / "models", FILES)
    go_on = cluster.gates / "go-on"
    add(admin, CONFIG % f", 'until:{go_on}'")
    assert admin.call("POST", "/api/models/horse/load").status == 202
    wait_until(
        lambda: load_status(admin, "horse").get("state") == "loading",
        what="its files are there and it is being loaded",
        within_s=60,
    )
    wait_until(
        lambda: (load_status(admin, "horse")["file_index"], load_status(admin, "horse")["total_files"]) == (8, 8),
        what="all of its files are counted",
    )
    go_on.touch()
    assert files_of(ask(admin, "horse", **question("files?"))) == READ
    assert admin.call("DELETE", "/api/models/horse").status == 200
    models = cluster.directory / "w1" / "models"
    wait_until(
        lambda: not [path for path in models.rglob("*") if path.is_file()], what="all of them are deleted", within_s=60
    )


def test_companions_are_fetched_by_the_worker_one_after_another_and_that_is_shown(cluster: Cluster) -> None:
    admin = cluster.admin()
    web = GatedFiles({name.rpartition("/")[2]: data * 1000 for name, data in FILES.items()})
    try:
        listed = ", ".join(web.download(name, name.rpartition("/")[2]) for name in FILES)
        add(admin, CONFIG % "" + f"download_files: [{listed}]\n")
        loading = subprocess.Popen(
            [sys.executable, "-m", "corral", "models", "load", "horse"],
            env=clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        total = sum(len(data) for data in web.files.values())
        for index, name in enumerate(web.files, 1):
            status = wait_until(
                partial(loading_file, admin, "horse", index),
                what=f"file {index} is on its way",
                within_s=60,
            )
            assert (status["state"], status["total_files"], status["total_bytes"]) == ("staging", 8, total)
            if index == 3:
                cold = ask_impatiently(admin, "horse")
                assert cold.status == 503
                assert "file 3 of 8" in cold.message
                assert cold.json()["loading"]["file_index"] == 3
            web.let_go(name)
        told, progress = loading.communicate(timeout=90)
        assert loading.returncode == 0, progress
        assert told.strip() == "horse: loaded"
        assert "file 3 of 8" in progress
        assert files_of(ask(admin, "horse", **question("files?"))) == {
            name: text * 1000 if isinstance(text, str) else [one * 1000 for one in text] for name, text in READ.items()
        }
    finally:
        web.stop()


NAMESAKES = {"here/model.bin": b"one's", "there/model.bin": b"the other's", "again/model.bin": b"an adapter's"}


def test_namesakes_from_different_addresses_are_never_taken_for_one_another(cluster: Cluster) -> None:
    admin = cluster.admin()
    web = GatedFiles(NAMESAKES)
    web.let_go()
    try:
        here, there, again = map(web.url, NAMESAKES)
        text = "name: %s\nbackend: echo\noptions: [read]\ntemplate: {use_tokenizer_template: true}\n"
        for name, address in (("one", here), ("two", there)):
            add(admin, f"{text % name}parameters: {{model: '{address}'}}\nlora_adapters: ['{again}']\n")
        for name, content in (("one", "one's"), ("two", "the other's")):
            read = files_of(ask(admin, name, **question("files?")))
            assert read == {"ModelFile": content, "LoraAdapters": ["an adapter's"]}
    finally:
        web.stop()


def test_a_download_is_not_replaced_by_a_namesake_on_the_frontend(cluster: Cluster) -> None:
    admin = cluster.admin()
    put(cluster.directory / "a" / "models", {"horse/model.gguf": b"another model's"})
    web = GatedFiles({"model.gguf": b"the weights"})
    web.let_go()
    try:
        text = "name: horse\nbackend: echo\nparameters: {model: horse/model.gguf}\noptions: [read]\n"
        listed = web.download("horse/model.gguf", "model.gguf")
        add(admin, f"{text}template: {{use_tokenizer_template: true}}\ndownload_files: [{listed}]\n")
        assert files_of(ask(admin, "horse", **question("files?"))) == {"ModelFile": "the weights"}
    finally:
        web.stop()


TREE = {"pony/config.json": b"{}", "pony/shards/1.bin": b"one", "pony/shards/2.bin": b"two", "pony/vocab": b""}
READ_TREE = {name.removeprefix("pony/"): data.decode() for name, data in TREE.items()}
PONY = (
    "name: pony\nbackend: echo\nparameters: {model: pony}\noptions: [read]\ntemplate: {use_tokenizer_template: true}\n"
)


def tree_of(answer: Answer) -> dict[str, str]:
    """Without the digests that LocalAI's file servers keep beside what they got."""
    return {name: text for name, text in files_of(answer)["ModelFile"].items() if not name.endswith(".sha256")}


def test_a_directory_is_sent_whole_and_what_is_lost_of_it_is_sent_again(cluster: Cluster) -> None:
    admin = cluster.admin()
    put(cluster.directory / "a" / "models", {**TREE, "pony/vocab.sha256": b"a note of another file server's"})
    add(admin, PONY)
    assert tree_of(ask(admin, "pony", **question("files?"))) == READ_TREE
    assert admin.call("POST", "/api/models/pony/unload").status == 200
    wait_until(lambda: not cluster.replicas("pony"), what="it is gone")
    models = cluster.directory / "w1" / "models"
    assert len((models / "pony" / "vocab.sha256").read_text()) == 64
    kept = (models / "pony" / "config.json").stat().st_ino
    (models / "pony" / "shards" / "2.bin").unlink()
    assert tree_of(ask(admin, "pony", **question("files?"))) == READ_TREE
    assert (models / "pony" / "config.json").stat().st_ino == kept, "what is there is not sent again"
    assert admin.call("DELETE", "/api/models/pony").status == 200
    wait_until(lambda: not (models / "pony").exists(), what="the directory is deleted", within_s=60)


def test_a_directory_whose_files_the_worker_fetches_is_a_model_too(cluster: Cluster) -> None:
    admin = cluster.admin()
    web = GatedFiles({name: data for name, data in TREE.items() if data})
    web.let_go()
    try:
        listed = ", ".join(web.download(name, name) for name in web.files)
        add(admin, f"{PONY}download_files: [{listed}]\n")
        read = {name: text for name, text in READ_TREE.items() if text}
        assert files_of(ask(admin, "pony", **question("files?"))) == {"ModelFile": read}
    finally:
        web.stop()


def test_files_that_two_models_use_stay_until_both_are_deleted(cluster: Cluster) -> None:
    admin = cluster.admin()
    put(cluster.directory / "a" / "models", {**FILES, **TREE})
    add(admin, CONFIG % "")
    add(admin, (CONFIG % "").replace("name: horse", "name: foal"))
    for model in ("horse", "foal"):
        assert files_of(ask(admin, model, **question("files?"))) == READ
    models = cluster.directory / "w1" / "models"
    assert admin.call("DELETE", "/api/models/horse").status == 200
    wait_until(lambda: not cluster.replicas("horse"), what="it is gone", within_s=60)
    wait_until(
        lambda: cluster.read_sql("SELECT model FROM staged_models") == [("foal",)],
        what="the delete is done",
        within_s=60,
    )
    assert all((models / name).read_bytes() == data for name, data in FILES.items())
    assert admin.call("DELETE", "/api/models/foal").status == 200
    wait_until(lambda: not (models / "vae.safetensors").exists(), what="nobody uses it any more", within_s=60)


def test_a_file_that_the_node_refuses_fails_the_load_with_the_cause(cluster: Cluster) -> None:
    admin = cluster.admin()
    put(cluster.directory / "a" / "models", TREE)
    put(cluster.directory / "w1" / "models", {"pony": b"a file where a directory has to be"})
    add(admin, PONY.replace("model: pony", "model: pony/shards/1.bin"))
    answer, haste = ask(admin, "pony", **question("files?")), Haste(admin, "pony")
    assert answer.status == 503
    assert "1.bin (3 B) was rejected with status 400: " in answer.message, answer.message
    assert "'pony' is a link or has the wrong type" in answer.message, answer.message
    haste.check()
