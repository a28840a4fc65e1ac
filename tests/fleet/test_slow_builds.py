"""A node with an accelerator and the CPU build of a backend: every place says so, and the named command corrects it."""

from typing import Any

import pytest

from harness.cluster import ADMIN_KEY, Cluster
from harness.localai_backend import localai_files
from harness.programs import clean_environment, run_cli

pytestmark = pytest.mark.registry


@pytest.fixture
def store(tmp_path: Any) -> str:
    """What is shown follows from rows that other tests check on both databases."""
    return f"sqlite://{tmp_path / 'shared.db'}"


def test_a_cpu_build_on_a_node_with_an_accelerator_is_shown_until_it_is_corrected(fleet: Cluster) -> None:
    builds = {"default": "cpu-echo", "nvidia-cuda-12": "cuda12-echo"}
    fleet.offer("echo", capabilities=builds)
    fleet.offer_image("cpu-echo", localai_files("cpu"), alias="echo", capabilities=builds)
    fleet.offer_image("cuda12-echo", localai_files("cuda"), alias="echo", capabilities=builds)
    admin = fleet.start_frontend("a", "--auto-approve")
    fleet.start_worker("one", "--capability", "nvidia-cuda-12")
    admin.wait_for_status("one", "healthy")
    environment = clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY)

    def run(*arguments: str) -> str:
        done = run_cli(*arguments, environment=environment)
        return done.stdout + done.stderr

    fleet.wait_for_operation(fleet.begin("/api/backends/install/cpu-echo", {"nodes": ["one"]}))
    (slow,) = admin.call("GET", "/api/fleet/slow-builds").json()
    remedy = "corral backends install echo --node one"
    assert (slow["backend"], slow["build"], slow["remedy"]) == ("echo", "cpu-echo", f"`{remedy}`")
    reason = "cpu-echo uses only the processor of one (nvidia-cuda-12); cuda12-echo uses its accelerator"
    assert slow["reason"] == reason
    for shown in (
        ("nodes", "show", "one"),
        ("backends", "list"),
        ("why", "node", "one"),
        ("why", "backend", "echo"),
        ("doctor",),
    ):
        text = run(*shown)
        assert reason in text, (shown, text)
        assert remedy in text, (shown, text)
    metric = 'corral_node_slow_build{node="one",backend="echo"} 1'
    assert metric in admin.call("GET", "/metrics").body.decode()

    assert "install echo: done" in run(*remedy.split()[1:])
    assert admin.call("GET", "/api/fleet/slow-builds").json() == []
    assert "accelerator has builds that use it" in run("doctor")
    assert metric not in admin.call("GET", "/metrics").body.decode()
