"""LocalAI's workers as full members: one as of 2026-05-07 and one as of 2026-08, from joining to the last delete."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import TOKEN, Cluster, ask
from harness.gated_files import GatedFiles
from harness.localai_backend import localai_files
from harness.localai_worker import AUGUST_2026, MAY_2026, Age, LocalAiWorker
from harness.nats import Nats, OpenNats
from harness.oci_registry import OciRegistry
from harness.programs import Admin
from harness.waiting import wait_until

pytestmark = pytest.mark.registry

FAMILY, BUILD = "llama-cpp", "cpu-llama-cpp"
"""A name that Corral's own gallery has too, for builds that no LocalAI worker can run."""
MODEL = """
name: %s
backend: llama-cpp
parameters: {model: %s}
template: {use_tokenizer_template: true}
options: [read]
"""


@dataclass
class Site:
    fleet: Cluster
    admin: Admin
    worker: LocalAiWorker

    def push(self, version: str) -> str:
        """A new build in the gallery; its digest."""
        digest = self.fleet.registry.push(BUILD, localai_files(version))
        uri = f"oci://{self.fleet.registry.host}/{BUILD}:latest"
        self.fleet.offer(BUILD, uri=uri, alias=FAMILY, version=version)
        self.fleet.offer(FAMILY, alias=FAMILY, capabilities={"default": BUILD})
        self.admin.refresh_galleries()
        return digest

    def rows(self) -> dict[str, dict[str, str]]:
        """By backend: nodes and builds, as `corral backends list` shows them."""
        found = self.admin.call("GET", "/api/fleet/backends").json()
        return {row["name"]: {node["node_name"]: node["variant"] for node in row["nodes"]} for row in found}

    def add(self, name: str, weights: str, more: str = "") -> None:
        added = self.admin.call("POST", "/api/models", body={"config": MODEL % (name, weights) + more})
        assert added.status == 201, added.body

    def chat(self, model: str, question: str) -> str:
        answer = ask(self.admin, model, messages=[{"role": "user", "content": question}])
        assert answer.status == 200, answer.body
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text

    def files(self, model: str) -> Any:
        return json.loads(self.chat(model, "files?"))

    def ready(self, model: str) -> list[str]:
        return [row["id"] for row in self.fleet.ready(model)]

    def wait_for_another(self, model: str, before: list[str]) -> None:
        """No dead replica stays ready: another takes its place."""
        wait_until(
            lambda: bool(now := self.ready(model)) and not set(now) & set(before),
            what=f"another replica of {model} is ready",
            within_s=60,
        )


@pytest.fixture(params=[MAY_2026, AUGUST_2026], ids=["2026-05-07", "2026-08"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, nats: Nats, store: str, registry: OciRegistry
) -> Iterator[Site]:
    """A worker from before June 2026 knows no credentials: its bus is open, and its frontend is told so."""
    age: Age = request.param
    bus = nats if age.takes_credentials else OpenNats(tmp_path)
    fleet = Cluster(tmp_path, bus, store, registry=registry)  # type: ignore[arg-type]
    weights = tmp_path / "a" / "models" / "weights.bin"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"the weights")
    admin = fleet.start_frontend("a", "--auto-approve")
    worker = LocalAiWorker(admin.url, TOKEN, bus.url, name="go", directory=tmp_path / "go", age=age)
    admin.wait_for_status("go", "healthy")
    yield Site(fleet, admin, worker)
    worker.crash()
    fleet.stop()
    if isinstance(bus, OpenNats):
        bus.stop()


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_localai_worker_is_a_full_member(site: Site) -> None:
    fleet, worker = site.fleet, site.worker
    first = site.push("1")
    # An install tells how far it is.
    if worker.age.reports_progress:
        worker.gate = threading.Event()
    job = fleet.begin(f"/api/backends/install/{FAMILY}")
    if worker.gate is not None:
        fleet.wait_for(lambda: fleet.operation(job)["nodes"][0]["percentage"] == 50.0, "its progress is shown")
        worker.gate.set()
    fleet.wait_for_operation(job)
    fleet.wait_for_digests(FAMILY, {"go": first})
    assert site.rows() == {FAMILY: {"go": BUILD}}

    # An upgrade, by an order that the worker knows.
    second = site.push("2")
    fleet.wait_for_operation(fleet.begin(f"/api/backends/upgrade/{FAMILY}"))
    fleet.wait_for_digests(FAMILY, {"go": second})
    orders = [
        (verb, request.get("force", False)) for verb, request in worker.asked if verb.endswith(("install", "upgrade"))
    ]
    upgrade = ("backend.upgrade", False) if "backend.upgrade" in worker.age.verbs else ("backend.install", True)
    assert orders == [("backend.install", False), upgrade]

    # Weights of the frontend, and weights that are downloaded: the backend reads both.
    web = GatedFiles({"origin.bin": b"downloaded weights"})
    web.let_go()
    site.add("kept", "weights.bin")
    site.add("fetched", "sub/model.bin", f"download_files: [{web.download('sub/model.bin', 'origin.bin')}]\n")
    assert site.chat("kept", "hello") == "weights.bin 2 says hello"
    assert site.files("kept") == {"ModelFile": "the weights"}
    assert site.files("fetched") == {"ModelFile": "downloaded weights"}
    assert sorted(worker.files.received) == ["models/fetched/sub/model.bin", "models/kept/weights.bin"]
    web.stop()

    # A process that died.
    before = site.ready("kept")
    worker.kill_backend("kept#0")
    assert site.chat("kept", "again") == "weights.bin 2 says again"
    assert not set(before) & set(site.ready("kept"))

    # An upgrade that stops what serves, or leaves it to us.
    before = site.ready("kept")
    third = site.push("3")
    fleet.wait_for_operation(fleet.begin(f"/api/backends/upgrade/{FAMILY}"))
    fleet.wait_for_digests(FAMILY, {"go": third})
    wait_until(
        lambda: site.chat("kept", "new?") == "weights.bin 3 says new?", what="the new version serves", within_s=60
    )
    assert not set(before) & set(site.ready("kept"))

    # A worker that was restarted, in order and not.
    for end in (worker.stop, worker.crash):
        before = site.ready("kept")
        end()
        worker.start()
        site.admin.wait_for_status("go", "healthy")
        assert site.chat("kept", "back?") == "weights.bin 3 says back?"
        assert not set(before) & set(site.ready("kept"))

    # The end: its models, then its backend.
    for model in ("kept", "fetched"):
        assert site.admin.call("DELETE", f"/api/models/{model}").status in (200, 204)
    fleet.wait_for(lambda: not list(worker.models.iterdir()), "the weights are gone", within_s=60)
    fleet.wait_for(lambda: not {"kept#0", "fetched#0"} & set(worker.processes), "no process of theirs is left")
    fleet.wait_for_operation(fleet.begin(f"/api/backends/delete/{FAMILY}"))
    fleet.wait_for_digests(FAMILY, {})
    assert worker.images.list(with_aliases=True) == []


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_an_upgrade_that_changes_nothing_is_not_reported_as_done(site: Site) -> None:
    """The worker confirms it, but a cache before its registry still has the old image."""
    fleet, worker = site.fleet, site.worker
    first = site.push("1")
    fleet.wait_for_operation(fleet.begin(f"/api/backends/install/{FAMILY}"))
    fleet.wait_for_digests(FAMILY, {"go": first})
    worker.images.stale_tags = True
    second = site.push("2")
    job = fleet.begin(f"/api/backends/upgrade/{FAMILY}")
    fleet.wait_for(lambda: "is still at" in fleet.operation(job)["nodes"][0]["error"], "the upgrade is not confirmed")
    assert fleet.operation(job)["state"] != "completed"
    worker.images.stale_tags = False
    assert fleet.post(f"/api/operations/{job}/retry").status in (200, 202)
    fleet.wait_for_operation(job)
    fleet.wait_for_digests(FAMILY, {"go": second})
