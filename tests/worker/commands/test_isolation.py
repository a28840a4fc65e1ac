"""What a backend, its siblings and strangers get to see and do."""

from pathlib import Path

from harness.fleet_worker import FleetWorker
from harness.localai_backend import write_http_backend
from harness.nats import Nats
from harness.orders import install, start
from harness.programs import call


async def test_a_backend_sees_nothing_of_the_worker_and_options_stay_data(tmp_path: Path, nats: Nats) -> None:
    """S-42, S-43, S-44."""
    worker = FleetWorker(tmp_path, nats, "--no-keep-backends", HF_TOKEN="canary-1", AWS_SECRET_ACCESS_KEY="canary-2")
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
