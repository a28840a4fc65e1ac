"""That leaks fail the test or the file that leaves them, by a real run of pytest on a few small files."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

CLEAN = """
import asyncio, subprocess, sys, threading
import pytest

@pytest.fixture(scope="module")
def server():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.stdin.write(b"over\\n")

@pytest.fixture(scope="module", autouse=True)
def thread(server):
    over = threading.Event()
    running = threading.Thread(target=over.wait)
    running.start()
    yield
    over.set()

async def test_a(server):
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()

def test_b(server): pass
"""
TASK = """
import asyncio

async def test_leaks():
    asyncio.create_task(asyncio.Event().wait(), name="forgotten")
    await asyncio.sleep(0)
"""
THREAD = """
import threading

def test_leaks():
    threading.Thread(target=threading.Event().wait, name="forgotten", daemon=True).start()

def test_after_it(): pass
"""
PROCESS = """
import subprocess, sys
processes = []

def test_leaks():
    processes.append(subprocess.Popen([sys.executable, "-c", "input()", "forgotten"], stdin=subprocess.PIPE))
"""
ORPHAN = """
import os, subprocess

def test_leaks(tmp_path):
    start = 'tail --pid="$1" -f /dev/null "$0" &'  # it ends with this run
    subprocess.run(["sh", "-c", start, str(tmp_path / "held"), str(os.getpid())], stdin=subprocess.DEVNULL, check=True)
"""
DESCRIPTOR = """
import os

def test_leaks(tmp_path):
    os.open(tmp_path / "forgotten", os.O_CREAT)
"""
SOCKET = """
import socket

def test_leaks():
    ring = [socket.socket()]
    ring.append(ring)
"""
RAISES = """
import threading

def test_leaks():
    def run(): raise ValueError("forgotten")
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""


def test_what_a_file_leaves_behind_fails_it(tmp_path: Path) -> None:
    files = {
        "clean": CLEAN, "task": TASK, "thread": THREAD, "process": PROCESS, "orphan": ORPHAN, "descriptor": DESCRIPTOR,
        "socket": SOCKET, "raises": RAISES,
    }  # fmt: skip
    for name, body in files.items():
        (tmp_path / f"test_{name}.py").write_text(body)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "conftest", "-c", str(TESTS.parent / "pyproject.toml")),
            *(
                f"--rootdir={tmp_path}",
                f"--basetemp={tmp_path / 't'}",
                "--settle-within=1",
                "-rA",
                "--tb=short",
                str(tmp_path),
            ),
        ],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    said = done.stdout + done.stderr
    failed = {line.split("::")[0].split()[1] for line in said.splitlines() if line.startswith(("FAILED", "ERROR test"))}
    assert failed == {f"test_{name}.py" for name in files if name != "clean"}, said
    for name, words in {
        "task": "task forgotten",
        "thread": "thread forgotten since test_leaks",
        "process": "input() forgotten since",
        "orphan": "held",
        "descriptor": "/forgotten",
        "socket": "unclosed <socket",
        "raises": "PytestUnhandledThread",
    }.items():
        assert any(name in line and words in line for line in said.splitlines()), (name, said)
