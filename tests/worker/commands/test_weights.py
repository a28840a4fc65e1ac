"""The worker brings weights to its own disk: by reference, verified, once."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.nats import Nats
from harness.single_worker import SingleWorker
from harness.tiny_model import Shelf
from harness.waiting import wait_until

WEIGHTS = bytes(range(256)) * 4096


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    shelf = Shelf(WEIGHTS)
    yield shelf
    shelf.close()


@pytest.fixture
def worker(tmp_path: Path, nats: Nats) -> Iterator[SingleWorker]:
    worker = SingleWorker(tmp_path, nats)
    yield worker
    worker.close()


def wanted(shelf: Shelf, **changes: Any) -> dict[str, Any]:
    file = {"filename": "tiny/weights.gguf", "uri": shelf.url, "sha256": hashlib.sha256(WEIGHTS).hexdigest()}
    return {"model": "tiny", "files": [{**file, **changes}], "paths": ["tiny/weights.gguf", "other.gguf"]}


async def test_weights_are_fetched_once_verified_and_reported_by_path(worker: SingleWorker, shelf: Shelf) -> None:
    async with worker.frontend() as frontend:
        replies = await asyncio.gather(*(frontend.ask("corral.model.fetch", **wanted(shelf)) for _ in range(5)))
        replies.append(await frontend.ask("corral.model.fetch", **wanted(shelf)))
        assert all(reply["success"] for reply in replies), replies
        path = Path(replies[0]["files"][0]["path"])
        assert await asyncio.to_thread(path.read_bytes) == WEIGHTS
        assert replies[0]["found"] == {"tiny/weights.gguf": {"path": str(path), "size": len(WEIGHTS)}}
        assert shelf.gets == 1, "five at once and one later: one download"


async def test_wrong_bytes_are_not_placed_and_the_cause_is_reported(worker: SingleWorker, shelf: Shelf) -> None:
    async with worker.frontend() as frontend:
        reply = await frontend.ask("corral.model.fetch", **wanted(shelf, sha256="0" * 64))
        assert not reply["success"]
        assert "sha256" in reply["error"]
        found = await frontend.ask("corral.model.fetch", model="tiny", paths=["tiny/weights.gguf"])
        assert found.get("found", {}) == {}


async def test_a_name_that_leads_out_of_the_models_directory_is_refused(worker: SingleWorker, shelf: Shelf) -> None:
    async with worker.frontend() as frontend:
        reply = await frontend.ask("corral.model.fetch", **wanted(shelf, filename="../../escaped"))
        assert not reply["success"]
        (worker.data_dir / "models").mkdir(exist_ok=True)
        (worker.data_dir / "models" / "link").symlink_to("/etc/passwd")
        paths = ["../http.token", "/etc/passwd", "link"]
        found = await frontend.ask("corral.model.fetch", model="tiny", paths=paths)
        assert found.get("found", {}) == {}


async def test_the_disk_has_back_what_a_deleted_model_took(worker: SingleWorker, shelf: Shelf) -> None:
    blobs = worker.data_dir / "blobs" / "sha256"
    async with worker.frontend() as frontend:
        assert (await frontend.ask("corral.model.fetch", **wanted(shelf)))["success"]
        second = {**wanted(shelf), "model": "twin"}
        second["files"][0]["filename"] = "twin.gguf"
        assert (await frontend.ask("corral.model.fetch", **second))["success"]
        (worker.data_dir / "models" / "twin.gguf.d").mkdir()
        assert (await frontend.ask("model.delete", model_name="tiny"))["success"]
        assert (await frontend.ask("model.delete", model_name="twin.gguf"))["success"]
        wait_until(lambda: not list(blobs.iterdir()) or None, what="the blob is gone")
        assert [path.name for path in (worker.data_dir / "models").iterdir()] == ["twin.gguf.d"]


async def test_a_deletion_that_comes_late_takes_no_file_that_a_newer_load_wants(
    worker: SingleWorker, shelf: Shelf
) -> None:
    path = worker.data_dir / "models" / "tiny" / "weights.gguf"
    async with worker.frontend() as frontend:
        assert (await frontend.ask("corral.model.fetch", **wanted(shelf), generation=5))["success"]
        for name in ("tiny/weights.gguf", "tiny"):
            late = await frontend.ask("model.delete", model_name=name, generation=4)
            assert not late["success"]
            assert "a newer load has requested it" in late["error"]
        epoch = (await frontend.ask("corral.report.now"))["epoch"]
        other = await frontend.ask("model.delete", model_name="tiny", generation=9, epoch=epoch + 1)
        assert (other["success"], path.exists()) == (False, True), "it was meant for another worker"
        assert (await frontend.ask("model.delete", model_name="tiny", generation=5, epoch=epoch))["success"]
        assert not path.exists()
        assert (await frontend.ask("corral.model.fetch", **wanted(shelf), generation=6))["success"]
        assert path.exists(), "and the next load brings it back"


async def test_weights_come_from_a_worker_that_has_them_and_from_their_origin_when_it_lies(
    worker: SingleWorker, tmp_path: Path, nats: Nats, shelf: Shelf
) -> None:
    (tmp_path / "other").mkdir()
    other = SingleWorker(tmp_path / "other", nats, node="11111111-2222-4333-8444-555555555555")
    try:
        async with other.frontend() as frontend:
            assert (await frontend.ask("corral.model.fetch", **wanted(shelf)))["success"]
            token = (await frontend.ask("corral.report.now"))["blob_token"]
        digest = hashlib.sha256(WEIGHTS).hexdigest()
        held = other.data_dir / "blobs" / "sha256" / digest
        async with worker.frontend() as frontend:
            peer = {"url": other.url, "token": token}
            reply = await frontend.ask("corral.model.fetch", **wanted(shelf), peers=[peer])
            assert reply["success"], reply
            assert shelf.gets == 1, "the origin was asked by the first worker only"
            await frontend.ask("model.delete", model_name="tiny")
            (worker.data_dir / "blobs" / "sha256" / digest).unlink(missing_ok=True)
            held.chmod(0o644)
            held.write_bytes(WEIGHTS[:-1] + b"?")
            reply = await frontend.ask("corral.model.fetch", **wanted(shelf), peers=[peer])
            assert reply["success"], reply
            assert shelf.gets == 2, "wrong bytes of a peer are not taken"
            path = Path(reply["files"][0]["path"])
            assert await asyncio.to_thread(path.read_bytes) == WEIGHTS
    finally:
        other.close()
