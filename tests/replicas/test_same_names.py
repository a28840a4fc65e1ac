"""A file of the frontend's models directory and a download under the same name: neither is served as the other."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster, ask
from harness.databases import BOTH
from harness.echo_cluster import start_echo_worker
from harness.gated_files import GatedFiles
from harness.nats import Nats
from harness.programs import Admin, Answer

PLAIN = """
name: {name}
backend: echo
parameters: {{model: shared.gguf}}
template: {{use_tokenizer_template: true}}
options: [read]
"""


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    store = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    running = Cluster(tmp_path, nats, store)
    running.start_frontend()
    start_echo_worker(running, "w1")
    yield running
    running.stop()


@pytest.fixture
def web() -> Iterator[GatedFiles]:
    files = GatedFiles({"theirs": b"from afar"})
    files.let_go("theirs")
    yield files
    files.stop()


def add(admin: Admin, config: str) -> Answer:
    return admin.call("POST", "/api/models", body={"config": config})


def downloading(web: GatedFiles, name: str) -> str:
    return f"{PLAIN.format(name=name)}download_files: [{web.download('shared.gguf', 'theirs')}]\n"


def weights_of(admin: Admin, model: str) -> str:
    answer = ask(admin, model, messages=[{"role": "user", "content": "files?"}])
    assert answer.status == 200, answer.body
    return str(json.loads(answer.json()["choices"][0]["message"]["content"])["ModelFile"])


def put_here(cluster: Cluster, content: bytes) -> None:
    path = cluster.directory / "a" / "models" / "shared.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_a_download_under_the_name_of_anothers_file_is_refused(cluster: Cluster, web: GatedFiles) -> None:
    admin = cluster.admin()
    put_here(cluster, b"our own")
    assert add(admin, PLAIN.format(name="mine")).status == 201
    assert weights_of(admin, "mine") == "our own"
    refused = add(admin, downloading(web, "theirs"))
    assert refused.status == 409, refused.body
    assert "'mine' uses shared.gguf" in refused.message
    assert "another filename" in refused.message


def test_a_name_that_another_model_downloads_is_that_download(cluster: Cluster, web: GatedFiles) -> None:
    admin = cluster.admin()
    assert add(admin, downloading(web, "theirs")).status == 201
    assert add(admin, PLAIN.format(name="also")).status == 201
    assert weights_of(admin, "also") == "from afar", "also where that model was never loaded"
    assert weights_of(admin, "theirs") == "from afar"
    edited = admin.call("PUT", "/api/models/theirs", body={"config": f"{downloading(web, 'theirs')}threads: 2\n"})
    assert edited.status == 200, edited.body
    put_here(cluster, b"our own")
    assert admin.call("POST", "/api/models/also/unload").status == 200
    doubtful = ask(admin, "also")
    assert doubtful.status == 503, doubtful.body
    differs = "shared.gguf in the frontend's models directory differs from the file that 'theirs' downloads"
    assert differs in doubtful.message
    assert weights_of(admin, "theirs") == "from afar"
    put_here(cluster, b"from afar")
    assert admin.call("POST", "/api/models/also/unload").status == 200
    assert weights_of(admin, "also") == "from afar", "the same file in both places is no question"
