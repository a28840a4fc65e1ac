"""Orders to a worker that many tests give, and backends that misbehave."""

from pathlib import Path
from typing import Any

from corral.worker.processes.records import read_start_ticks
from harness.single_worker import Commander
from harness.waiting import wait_until_async

START = {"start": {"model": "/weights"}}


async def install(frontend: Commander, source: Path, name: str = "web") -> None:
    reply = await frontend.ask("backend.install", backend=name, uri=f"file://{source}")
    assert reply["success"], reply


async def start(frontend: Commander, model: str, name: str = "web", **extras: Any) -> dict[str, Any]:
    fields = {**START, **extras}
    reply: dict[str, Any] = await frontend.ask("backend.install", backend=name, model_id=model, corral=fields)
    return reply


async def until_state(frontend: Commander, key: str, state: str, *, within_s: float = 20.0) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        process = (await frontend.processes()).get(key)
        return process if process is not None and process["state"] == state else None

    return await wait_until_async(look, what=f"{key} is {state}", within_s=within_s)


def with_helper(files: dict[str, bytes], *, ignore_term: bool = False, flood: bool = False) -> dict[str, bytes]:
    """A server that leaves a helper in a session of its own, with no parent to be found by."""
    before = (
        "import os, signal, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "        open(os.path.join(os.environ['HOME'], 'helper'), 'w').write(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    if ignore_term:
        before += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    if flood:
        before += (
            "import threading\n"
            "def pour():\n"
            "    while True:\n"
            "        os.write(1, b'x' * 200 + b'\\n')\n"
            "threading.Thread(target=pour, daemon=True).start()\n"
        )
    return {**files, "server.py": before.encode() + files["server.py"]}


def write(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir()
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


def is_dead(pid: int) -> bool:
    return read_start_ticks(pid) is None
