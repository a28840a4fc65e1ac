"""Weights go through a bucket that all machines share, and leave it with the last model that needs them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from corral.system.buckets import PREFIX
from harness.cluster import Cluster, ask
from harness.databases import BOTH
from harness.localai_backend import write_localai_backend
from harness.nats import Nats
from harness.programs import Admin
from harness.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from harness.waiting import wait_until

KEYS: dict[str, Any] = {"CORRAL_STORAGE_ACCESS_KEY": ACCESS_KEY, "CORRAL_STORAGE_SECRET_KEY": SECRET_KEY}
TREE = {"config.json": b"{}", "shards/1.bin": b"one" * 1000, "shards/2.bin": b"two" * 1000}
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    server = S3Server(tmp_path / "s3")
    yield server
    server.stop()


class Bucket:
    """One that frontends and workers share."""

    def __init__(self, server: S3Server) -> None:
        self._store: S3Store = server.make_bucket("shared")
        self.flags = ("--storage-url", server.url, "--storage-bucket", "shared")

    def objects(self) -> set[str]:
        return {item["path"] for page in obstore.list(self._store, prefix=PREFIX) for item in page}


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    return Bucket(s3)


@pytest.fixture(params=BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, nats: Nats, bucket: Bucket) -> Iterator[Cluster]:
    store = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    running = Cluster(tmp_path, nats, store)
    running.start_frontend("a", *bucket.flags, **KEYS)
    write_localai_backend(tmp_path / "system" / "echo")
    yield running
    running.stop()


def start_worker(cluster: Cluster, name: str, bucket: Bucket) -> None:
    cluster.start_worker(name, *bucket.flags, "--system-backends-dir", str(cluster.directory / "system"), **KEYS)


def config(name: str, model: str) -> str:
    return (
        f"name: {name}\nbackend: echo\nparameters: {{model: {model}}}\noptions: [read]\n"
        "template: {use_tokenizer_template: true}\n"
    )


def add(admin: Admin, text: str) -> None:
    added = admin.call("POST", "/api/models", body={"config": text})
    assert added.status == 201, added.body


def put(cluster: Cluster, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = cluster.directory / "a" / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def key_of(data: bytes) -> str:
    return f"{PREFIX}/{hashlib.sha256(data).hexdigest()}"


def test_a_directory_goes_through_the_bucket_once_for_all_machines(cluster: Cluster, bucket: Bucket) -> None:
    admin = cluster.admin()
    for name in ("w1", "w2"):
        start_worker(cluster, name, bucket)
    put(cluster, {f"mine/{name}": data for name, data in TREE.items()})
    add(admin, config("mine", "mine"))
    wanted = {"model_name": "mine", "min_replicas": 2, "max_replicas": 2}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    rows = cluster.wait_for_ready("mine", 2)
    assert len({row["node_id"] for row in rows}) == 2
    assert ask(admin, "mine", **QUESTION).status == 200
    assert bucket.objects() == {key_of(data) for data in TREE.values()}, "each by its digest"
    for worker in ("w1", "w2"):
        root = cluster.directory / worker / "models" / "mine"
        assert {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()} == TREE


def test_objects_leave_the_bucket_when_their_model_is_edited(cluster: Cluster, bucket: Bucket) -> None:
    admin = cluster.admin()
    start_worker(cluster, "w1", bucket)
    put(cluster, {"kept.bin": b"needed", "left.bin": b"no longer needed"})
    add(admin, config("first", "kept.bin") + "mmproj: left.bin\n")
    assert ask(admin, "first", **QUESTION).status == 200
    kept, left = key_of(b"needed"), key_of(b"no longer needed")
    assert bucket.objects() == {kept, left}
    edited = admin.call("PUT", "/api/models/first", body={"config": config("first", "kept.bin")})
    assert edited.status == 200, edited.body
    wait_until(lambda: bucket.objects() == {kept}, what="what is not needed any more is gone", within_s=60)
    assert ask(admin, "first", **QUESTION).status == 200


def test_objects_leave_the_bucket_with_the_last_model_whichever_frontends_die(cluster: Cluster, bucket: Bucket) -> None:
    admin = cluster.admin()
    start_worker(cluster, "w1", bucket)
    put(cluster, {"shared.bin": b"of both", "one.bin": b"of the first"})
    add(admin, config("first", "shared.bin") + "mmproj: one.bin\n")
    add(admin, config("second", "shared.bin"))
    for model in ("first", "second"):
        assert ask(admin, model, **QUESTION).status == 200
    both, alone = key_of(b"of both"), key_of(b"of the first")
    assert bucket.objects() == {both, alone}
    assert admin.call("DELETE", "/api/models/first").status == 200
    wait_until(lambda: bucket.objects() == {both}, what="what nobody needs is gone", within_s=60)
    # The only frontend that knows the bucket dies; another, which does not, takes the order to delete.
    cluster.frontends["a"].kill()
    other = cluster.start_frontend("b")
    assert other.call("DELETE", "/api/models/second").status == 200
    assert bucket.objects() == {both}, "nobody is there who could"
    cluster.start_frontend("a", *bucket.flags, **KEYS)
    wait_until(lambda: not bucket.objects(), what="the order outlived every frontend", within_s=60)
    wait_until(lambda: not cluster.read_sql("SELECT * FROM bucket_weights"), what="nothing is remembered of it")
    # And what is needed again is put there again.
    add(admin, config("third", "shared.bin"))
    wait_until(lambda: admin.nodes()["w1"]["status"] == "healthy", what="the worker has come back", within_s=60)
    (cluster.directory / "w1" / "models" / "shared.bin").unlink(missing_ok=True)
    assert ask(admin, "third", **QUESTION).status == 200
    assert bucket.objects() == {both}
