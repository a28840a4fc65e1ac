"""`files.*` against a real S3 server."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from corral.bus.subjects import FILES_LISTDIR, FILES_TEMP
from corral.core.errors import NoResponders
from corral.worker.commands import FILE_COMMANDS
from corral.worker.files.object_storage import object_key
from harness.nats import Nats
from harness.oci_registry import Trickle
from harness.registrar import NODE
from harness.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from harness.single_worker import SingleWorker
from harness.unreadable_requests import UNREADABLE

BUCKET = "localai"


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    server = S3Server(tmp_path / "s3")
    yield server
    server.stop()


@pytest.fixture
def store(s3: S3Server) -> S3Store:
    return s3.make_bucket(BUCKET)


@pytest.fixture
def storing_worker(tmp_path: Path, nats: Nats, s3: S3Server) -> Iterator[SingleWorker]:
    secret = tmp_path / "secret"
    secret.write_text(SECRET_KEY)
    environment: dict[str, Any] = {
        "CORRAL_STORAGE_ACCESS_KEY": ACCESS_KEY,
        "CORRAL_STORAGE_SECRET_KEY_FILE": str(secret),
    }
    worker = SingleWorker(tmp_path, nats, "--storage-url", s3.url, **environment)
    yield worker
    worker.close()


async def test_weights_come_and_outputs_go_through_the_shared_storage(
    storing_worker: SingleWorker, store: S3Store
) -> None:
    worker, data = storing_worker, os.urandom(9 << 20)
    obstore.put(store, "models/qwen/model.gguf", data)
    async with worker.frontend() as frontend:
        ensured = await frontend.ask("files.ensure", key="models/qwen/model.gguf")
        path = worker.data_dir / "cache" / "models" / "qwen" / "model.gguf"
        assert ensured == {"local_path": str(path)}
        assert path.read_bytes() == data
        kept = path.stat().st_ino
        await frontend.ask("files.ensure", key="models/qwen/model.gguf")
        assert path.stat().st_ino == kept, "unchanged, so not fetched again"
        obstore.put(store, "models/qwen/model.gguf", data[:100])
        await frontend.ask("files.ensure", key="models/qwen/model.gguf")
        assert path.read_bytes() == data[:100]
        missing = await frontend.ask("files.ensure", key="models/none")
        assert "models/none" in missing["error"]

        temporary = (await frontend.ask("files.temp"))["local_path"]
        (worker.data_dir / "cache" / "staging-tmp" / os.path.basename(temporary)).write_bytes(b"an image")
        key = f"ephemeral/fetch/{temporary}/output"
        assert (await frontend.ask("files.stage", local_path=temporary, key=key)) == {"key": key}
        assert bytes(obstore.get(store, object_key(key)).bytes()) == b"an image"
        for outside in ("/etc/passwd", f"{worker.data_dir}/cache/../identity.json", "relative"):
            refused = await frontend.ask("files.stage", local_path=outside, key="stolen")
            assert "only files of the cache" in refused["error"]
        (worker.data_dir / "cache" / "link").symlink_to("/etc/passwd")
        linked = await frontend.ask("files.stage", local_path=f"{worker.data_dir}/cache/link", key="stolen")
        assert "is a link" in linked["error"]

        (worker.data_dir / "models" / "m").mkdir()
        (worker.data_dir / "models" / "m" / "a.gguf").write_text("x")
        assert (await frontend.ask("files.listdir", key_prefix="models/m")) == {"files": ["a.gguf"]}
        assert (await frontend.ask("files.listdir", key_prefix="models/none")) == {"files": None}
        escape = await frontend.ask("files.listdir", key_prefix="models/../..")
        assert escape["error"]


async def test_outputs_are_written_under_exactly_the_key_the_frontend_fetches_them_from(
    tmp_path: Path, nats: Nats, s3: S3Server, store: S3Store
) -> None:
    """LocalAI's keys have two slashes in a row. Our test server makes one of them, others do not: so we look at what
    was sent, which the server has to find well signed."""
    line = Trickle(s3.port, bytes_per_s=1 << 30)
    secret = tmp_path / "secret"
    secret.write_text(SECRET_KEY)
    environment: dict[str, Any] = {
        "CORRAL_STORAGE_ACCESS_KEY": ACCESS_KEY,
        "CORRAL_STORAGE_SECRET_KEY_FILE": str(secret),
    }
    worker = SingleWorker(tmp_path, nats, "--storage-url", f"http://127.0.0.1:{line.port}", **environment)
    try:
        async with worker.frontend() as frontend:
            temporary = Path((await frontend.ask("files.temp"))["local_path"])
            output = os.urandom(3 << 20)
            await asyncio.to_thread(temporary.write_bytes, output)
            key = f"ephemeral/fetch/{temporary}/output"
            assert "fetch//" in key
            assert await frontend.ask("files.stage", local_path=str(temporary), key=key) == {"key": key}
            assert any(piece.startswith(f"PUT /{BUCKET}/{key} HTTP".encode()) for piece in line.asked)
            assert bytes(obstore.get(store, object_key(key)).bytes()) == output
            escaping = "ephemeral/fetch//../../stolen"
            refused = await frontend.ask("files.stage", local_path=str(temporary), key=escaping)
            assert "not a valid path" in refused["error"]
    finally:
        worker.close()
        line.stop()


async def test_a_request_nobody_can_read_is_answered(storing_worker: SingleWorker, store: S3Store) -> None:
    async with storing_worker.frontend() as frontend:
        for command in FILE_COMMANDS:
            for garbage in UNREADABLE:
                data = await frontend.bus.request(f"nodes.{NODE}.{command.subject}", garbage, within_s=60)
                reply = json.loads(data)
                # Nothing need be said to get a temporary file, and no prefix means all of them.
                is_empty = garbage in (b"", b"null")
                is_enough = command.subject == FILES_TEMP or (command.subject == FILES_LISTDIR and is_empty)
                assert bool(reply.get("error")) != is_enough, (command.subject, garbage, reply)
    assert [found["path"] for found in obstore.list(store).collect()] == ["probe"], "only what was there before"


async def test_a_worker_without_storage_listens_on_no_file_subject(worker: SingleWorker) -> None:
    async with worker.frontend() as frontend:
        with pytest.raises(NoResponders):
            await frontend.ask("files.ensure", key="x")


async def test_a_model_is_deleted_inside_the_models_directory_only(worker: SingleWorker, tmp_path: Path) -> None:
    async with worker.frontend() as frontend:
        models = worker.data_dir / "models"
        (models / "dir").mkdir()
        for name in ("dir/weights", "file.gguf", "file.gguf.sha256", "file.gguf2"):
            (models / name).write_text("x")
        (tmp_path / "precious").write_text("x")
        (models / "out").symlink_to(tmp_path)
        for name in ("dir", "file.gguf", "nothing-there"):
            assert await frontend.ask("model.delete", model_name=name) == {"success": True}
        assert sorted(path.name for path in models.iterdir()) == ["file.gguf2", "out"]
        for name in ("../x", "out/precious", "/etc/passwd", ""):
            refused = await frontend.ask("model.delete", model_name=name)
            assert refused == {"success": False, "error": f'model name "{name}" escapes models directory'}
        assert (tmp_path / "precious").exists()
