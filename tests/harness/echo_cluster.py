"""A cluster whose workers have LocalAI's kind of backend, which is there in a moment."""

from harness.cluster import Cluster
from harness.localai_backend import write_localai_backend
from harness.programs import Admin

CONFIG = "name: {name}\nbackend: echo\ntemplate: {{use_tokenizer_template: true}}\n"


def start_echo_worker(cluster: Cluster, name: str, *flags: str, dies: bool = False) -> None:
    """One that `dies` has a backend whose every process ends as soon as it was started."""
    backends = cluster.directory / f"{name}-system"
    write_localai_backend(backends / "echo")
    if dies:
        run = backends / "echo" / "run.sh"
        run.write_text("#!/bin/sh\necho 'no such device' >&2\nexit 3\n")
    cluster.start_worker(name, "--system-backends-dir", str(backends), "--backend-restarts", "0", *flags)


def repair_echo_worker(cluster: Cluster, name: str) -> None:
    write_localai_backend(cluster.directory / f"{name}-system" / "echo")


def add_echo_models(admin: Admin, *names: str, more: str = "") -> None:
    for name in names:
        added = admin.call("POST", "/api/models", body={"config": CONFIG.format(name=name) + more})
        assert added.status == 201, added.body
