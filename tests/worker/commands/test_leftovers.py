"""Backends that a stopped worker leaves: it says so, `doctor` shows them, and a command ends them (D18)."""

from pathlib import Path

from harness.localai_backend import write_http_backend
from harness.nats import Nats
from harness.programs import clean_environment, run_cli
from harness.single_worker import SingleWorker
from harness.waiting import wait_until
from harness.worker_commands import install, is_dead, start


async def test_a_stopped_worker_says_what_it_leaves_and_a_command_ends_it(tmp_path: Path, nats: Nats) -> None:
    worker = SingleWorker(tmp_path, nats)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            pids = [(await start(frontend, model))["corral"]["pid"] for model in ("a", "b")]
            refused = run_cli("worker", "stop-backends", "--data-dir", str(worker.data_dir))
            assert (refused.returncode, "Stop it first" in refused.stderr) == (1, True), refused.stderr
        assert worker.program.stop() == 0
        assert not any(map(is_dead, pids)), "they serve on"
        last = worker.program.output().splitlines()[-1]
        assert "2 backends (a#0, b#0)" in last
        assert f"corral worker stop-backends --data-dir {worker.data_dir}" in last

        doctor = run_cli("doctor", "--data-dir", str(worker.data_dir), environment=clean_environment()).stdout
        assert f"2 backends (a#0, b#0) of {worker.data_dir} running without a worker" in doctor
        assert f"worker stop-backends --data-dir {worker.data_dir}" in doctor

        ended = run_cli("worker", "stop-backends", "--data-dir", str(worker.data_dir))
        assert (ended.returncode, ended.stdout) == (0, "Stopped 2 backends (a#0, b#0).\n"), ended.stderr
        wait_until(lambda: all(map(is_dead, pids)) or None, what="both are gone", within_s=5)
        again = run_cli("worker", "--data-dir", str(worker.data_dir), "stop-backends")
        assert (again.returncode, again.stdout) == (0, f"No backend of {worker.data_dir} was running.\n")
        doctor = run_cli("doctor", "--data-dir", str(worker.data_dir), environment=clean_environment()).stdout
        assert "running without a worker" not in doctor
        assert "isolation" in doctor
        missing = run_cli("worker", "stop-backends", "--data-dir", str(tmp_path / "nowhere"))
        assert (missing.returncode, "is not a worker's data directory" in missing.stderr) == (2, True)
    finally:
        assert worker.close() == []
