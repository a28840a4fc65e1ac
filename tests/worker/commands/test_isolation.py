"""What a backend, its siblings and strangers get to see and do."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.localai_backend import write_http_backend
from harness.namespaces import TwoMachines
from harness.nats import Nats
from harness.programs import Answer, call
from harness.single_worker import SingleWorker
from harness.worker_commands import install, start


async def test_a_backend_sees_nothing_of_the_worker_and_options_stay_data(tmp_path: Path, nats: Nats) -> None:
    """S-42, S-43, S-44."""
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", HF_TOKEN="canary-1", AWS_SECRET_ACCESS_KEY="canary-2")
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            nasty = "x --token=y; touch /tmp/corral-was-here $(id) LD_PRELOAD=/x"
            options = {"model": "/weights", "options": {"flavour": nasty}}
            started = await start(frontend, "m", start=options)
            assert started["success"], started
            url, token = f"http://{started['address']}", started["corral"]["token"]
            seen = call("GET", f"{url}/environment", key=token).json()
            everything = str(seen)
            for secret in ("canary-1", "canary-2", "test-registration-token", str(worker.registrar.url)):
                assert secret not in everything
            assert f"--flavour={nasty}" in seen["argv"], "one argument, untouched"
            assert token not in str(seen["argv"])
            assert not [
                name for name in seen["environ"] if name.startswith(("CORRAL_TOKEN", "LOCALAI_", "HF_", "AWS_"))
            ]
            opened = [name for name in seen["fds"] if name.startswith("/") and not name.startswith(("/proc", "/dev"))]
            assert opened == []
            assert call("GET", f"{url}/x", key="guess").status == 401
            for bad in (
                {"model": "/weights", "options": {"unknown": "1"}},
                {"model": "/weights", "options": {"flavour": "a\0b"}},
                {"model": "{token}"},
            ):
                refused = await start(frontend, "n", start=bad)
                assert not refused["success"], bad
    finally:
        assert worker.close() == []


USERS = "280000-280099"


async def test_backends_run_as_users_of_their_own_and_cannot_look_at_one_another(tmp_path: Path, nats: Nats) -> None:
    """S-42: uid, groups, siblings, and the secrets of the worker."""
    if os.geteuid() != 0:
        pytest.skip("only root can start processes as other users")
    # The one that runs this test may lie in a home directory.
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("there is no Python here that every user may run")
    open_to_all(tmp_path)
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", "--backend-user", USERS)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source", python=python))
            first, second = await start(frontend, "a"), await start(frontend, "b")
            assert first["success"], first
            assert second["success"], second

            def ask(path: str) -> Any:
                return call("GET", f"http://{first['address']}{path}", key=first["corral"]["token"]).json()

            seen = ask("/environment")
            sibling = psutil.Process(second["corral"]["pid"])
            assert 280000 <= seen["uid"] <= 280099
            assert sibling.uids().real not in (seen["uid"], 0)
            home = sibling.environ()["HOME"]
            foreign = [
                *(f"/proc/{sibling.pid}/{name}" for name in ("environ", "mem", "fd", "cwd")),
                *(f"/proc/{worker.program.pid}/{name}" for name in ("environ", "fd")),
                home,
                *(str(worker.data_dir / name) for name in ("http.token", "blob.token", "identity.json", ".")),
                str(worker.data_dir / "run" / "logs"),
                *(str(path) for path in worker.data_dir.glob("*.token")),
                *(str(path) for path in (worker.data_dir / "run" / "processes").glob("*/record.json")),
                *(str(path) for path in worker.data_dir.iterdir() if path.is_file()),
            ]
            readable = [path for path in foreign if ask(f"/read{path}")["found"] is not None]
            assert readable == []
            assert ask(f"/read{seen['cwd']}")["found"] is not None, "its own directory it may read"
            for pid in (sibling.pid, worker.program.pid):
                assert os.getpgid(pid) != os.getpgid(first["corral"]["pid"])
    finally:
        assert worker.close() == []


def open_to_all(path: Path) -> None:
    """pytest's directories are closed to other users; a process that runs as one must get to its own."""
    for directory in (path, *path.parents):
        if directory == Path(tempfile.gettempdir()):
            return
        directory.chmod(0o755)


@pytest.mark.netns
def test_a_backend_is_no_use_to_whoever_reaches_its_port_from_another_machine(tmp_path: Path) -> None:
    """S-43. On loopback it is not even reached; on the network it wants its token, and so does the file server."""
    machines = TwoMachines()
    here, there = machines.addresses["first"], machines.addresses["second"]
    inside = machines.inside("first")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        source = write_http_backend(tmp_path / "source")
        for host, heard in (("127.0.0.1", "refused"), (here, "401")):
            done = subprocess.run(
                [*inside, sys.executable, str(Path(__file__).with_name("lone_worker.py")), host, str(source),
                 str(tmp_path / host), *machines.inside("second")],
                capture_output=True, text=True, timeout=90, env=environment,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-4000:]
            answers = json.loads(done.stdout.splitlines()[-1])
            print(f"from {there} to {host}: {answers}")
            assert set(answers.values()) == {heard}
    finally:
        machines.remove()


async def test_files_come_in_only_within_the_quota_and_the_areas(tmp_path: Path, nats: Nats) -> None:
    """S-45, through the worker."""
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", "--files-quota", "3MiB")
    try:
        async with worker.frontend() as frontend:
            token = (await frontend.ask("corral.report.now"))["http_token"]

        def put(key: str, size: int, **headers: str) -> Answer:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return call("PUT", f"{worker.url}/v1/files/{key}", key=token, raw=bytes(size), headers=named)

        assert put("models/a", 2 << 20).status == 200
        assert put("models/a", 2 << 20).status == 200, "instead of itself it fits again"
        for key in ("models/b", "data/b", "b"):
            refused = put(key, 2 << 20)
            assert (refused.status, b"remaining upload limit" in refused.body) == (507, True)
        part = put("models/c", 1 << 19, Content_Range=f"bytes 0-{(1 << 19) - 1}/{2 << 20}")
        assert part.status == 507, "what it will need counts, not what it begins with"
        assert put("models/d", 1 << 19).status == 200
        (worker.data_dir / "models" / "out").symlink_to(tmp_path)
        (worker.data_dir / "models" / "precious").symlink_to(worker.data_dir / "identity.json")
        for key in ("models/out/x", "models/precious", "models/../identity.json", "data/../../x", "models/a/x"):
            assert put(key.replace("..", "%2e%2e"), 10).status == 400, key
        assert not (tmp_path / "x").exists()
        assert call("GET", f"{worker.url}/v1/files/models/precious", key=token).status == 400
        (worker.data_dir / "models" / "a").unlink()
        assert put("models/b", 2 << 20).status == 200
    finally:
        assert worker.close() == []
