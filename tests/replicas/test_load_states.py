"""What a load is said to do is what it does, from its first moment to its last."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import Cluster
from harness.gated_files import GatedFiles
from harness.localai_backend import localai_files, write_localai_backend
from harness.oci_registry import layer_of
from harness.programs import Admin
from harness.waiting import wait_until

CONFIG = """
name: horse
backend: echo
template: {use_tokenizer_template: true}
parameters: {model: horse/model.gguf}
"""
STARTED = "its process is starting"


@pytest.fixture
def cluster(cluster_without_engine: Cluster) -> Cluster:
    return cluster_without_engine


def backend_archive(go: Path) -> bytes:
    """A backend whose process begins to listen when the file is there."""
    files = localai_files("1")
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done\n".encode()
    files["run.sh"] = files["run.sh"].replace(b"exec ", wait + b"exec ", 1)
    return layer_of(files)


class States:
    """All that were told, in their order."""

    def __init__(self, admin: Admin, model: str) -> None:
        self._admin, self._model = admin, model
        self.seen: list[tuple[str, str, str]] = []

    def look(self) -> dict[str, Any]:
        answer = self._admin.call("GET", f"/api/models/{self._model}/load-status")
        found: dict[str, Any] = answer.json() if answer.status == 200 else {}
        told = (found.get("state", ""), found.get("node", ""), found.get("reason", ""))
        if found or self.seen:  # its first moment is when there is a load
            self.seen += [told] if told not in self.seen[-1:] else []
        return found

    def wait_for(self, state: str, reason: str = "") -> None:
        def told() -> bool:
            found = self.look()
            return (found.get("state", ""), found.get("reason", "")) == (state, reason)

        try:
            wait_until(told, what=f"its load is {state or 'over'} {reason}", within_s=60)
        except AssertionError as error:
            raise AssertionError(f"{error}; told were {self.seen}") from None


def add(admin: Admin, config: str) -> None:
    added = admin.call("POST", "/api/models", body={"config": config})
    assert added.status == 201, added.body


def without_moments(seen: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Between its place and its first step a load is pending still, for a moment that may be seen or not."""
    return [told for told in seen if told[0] != "pending"]


def test_every_step_of_a_load_is_shown_while_it_lasts(cluster: Cluster) -> None:
    start, loaded = cluster.gates / "start", cluster.gates / "loaded"
    web = GatedFiles({"weights": b"the weights" * 100, "echo.tar": backend_archive(start)})
    gallery = cluster.directory / "gallery.yaml"
    gallery.write_text(json.dumps([{"name": "echo", "uri": web.url("echo.tar")}]))
    trust = ("--trusted-hosts", "127.0.0.1", "--plain-http-hosts", "127.0.0.1")
    admin = cluster.start_frontend("a", "--backend-galleries", f"ours=file://{gallery}", *trust)
    listed = web.download("horse/model.gguf", "weights")
    try:
        add(admin, f"{CONFIG}options: ['until:{loaded}']\ndownload_files: [{listed}]\n")
        assert admin.call("POST", "/api/models/horse/load").status == 202
        states = States(admin, "horse")
        wait_until(lambda: states.look().get("reason"), what="it waits for a node and says so")
        assert states.look()["state"] == "pending"
        assert "node" not in states.look()
        cluster.start_worker("w1")
        states.wait_for("staging")
        web.let_go("weights")
        states.wait_for("installing")
        web.let_go("echo.tar")
        states.wait_for("loading", STARTED)
        start.touch()
        states.wait_for("loading")
        loaded.touch()
        states.wait_for("")
        cluster.wait_for_ready("horse", 1)
        assert without_moments(states.seen) == [
            ("staging", "w1", ""),
            ("installing", "w1", ""),
            ("loading", "w1", STARTED),
            ("loading", "w1", ""),
            ("", "", ""),
        ]
    finally:
        web.stop()


def test_a_backend_that_is_there_is_never_said_to_be_installed(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    write_localai_backend(cluster.directory / "system" / "echo")
    cluster.start_worker("w1", "--system-backends-dir", str(cluster.directory / "system"))
    loaded = cluster.gates / "loaded"
    add(admin, f"{CONFIG}options: ['until:{loaded}']\n".replace("parameters: {model: horse/model.gguf}\n", ""))
    assert admin.call("POST", "/api/models/horse/load").status == 202
    states = States(admin, "horse")
    states.wait_for("loading")
    loaded.touch()
    states.wait_for("")
    assert {told[0] for told in states.seen} <= {"pending", "loading", ""}, states.seen
