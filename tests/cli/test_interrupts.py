"""Ctrl-C, pressed once or repeatedly: the program exits without a traceback and reports once what continues."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.programs import clean_environment
from harness.up import Up
from harness.waiting import wait_until
from harness.zygote import ForkedProcess

ID = "0d8f8a52-6a0b-4b0f-9d3f-6a6f0d1c2b3a"
OPERATION = {
    "jobID": ID, "verb": "install", "name": "greet", "state": "running", "cancellable": True, "progress": 0,
    "nodes": [{"node_id": "1", "node_name": "one", "status": "downloading", "percentage": 1.0}],
}  # fmt: skip
GAPS_S = (0.0, 0.003, 0.01, 0.03, 0.1)


class _Frontend(BaseHTTPRequestHandler):
    """One operation that does not end."""

    def do_GET(self) -> None:
        if self.path.startswith("/api/events"):
            self.send_response(200)
            self.end_headers()
            self.rfile.read()  # until the command goes
            return
        body = json.dumps([] if self.path == "/api/nodes" else OPERATION).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Frontend)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(60)
    server.server_close()


def interrupt_twice(process: int, gap_s: float) -> None:
    os.kill(process, signal.SIGINT)
    time.sleep(gap_s)  # this is the person's finger, not a wait for something
    try:
        os.kill(process, signal.SIGINT)
    except ProcessLookupError:
        return


def interrupt_without_pause(process: "subprocess.Popen[bytes] | ForkedProcess") -> None:
    """As a held key does, only faster: whatever handles one is met by another."""
    give_up_s = time.monotonic() + 120
    while process.poll() is None:
        assert time.monotonic() < give_up_s, "it does not end"
        process.send_signal(signal.SIGINT)
        time.sleep(0.0002)


def start(*arguments: str, out: Path, url: str) -> "subprocess.Popen[bytes]":
    with out.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "corral", *arguments],
            stdout=file, stderr=subprocess.STDOUT, env=clean_environment(CORRAL_URL=url, CORRAL_API_KEY="k"),
        )  # fmt: skip


@pytest.mark.parametrize("gap_s", GAPS_S)
def test_a_command_that_watches_ends_quietly(url: str, gap_s: float, tmp_path: Path) -> None:
    out = tmp_path / "out"
    watching = start("ops", "watch", ID, out=out, url=url)
    wait_until(lambda: "one" in out.read_text(), what="it watches")
    interrupt_twice(watching.pid, gap_s)
    assert watching.wait(timeout=30) == 130
    assert_quiet(out.read_text())


def assert_quiet(output: str) -> None:
    assert "Traceback" not in output
    assert "KeyboardInterrupt" not in output
    assert "Exception ignored" not in output


@pytest.mark.parametrize("turn", range(5))
def test_a_command_that_is_interrupted_without_pause_ends_quietly_and_reports_what_continues(
    url: str, turn: int, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    watching = start("ops", "watch", ID, out=out, url=url)
    wait_until(lambda: "one" in out.read_text(), what="it watches")
    interrupt_without_pause(watching)
    assert watching.returncode == 130
    assert out.read_text().count("The operation continues.") == 1
    assert_quiet(out.read_text())


def test_a_pull_that_is_interrupted_without_pause_ends_quietly_and_reports_what_is_kept(
    url: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        options = ("--data-dir", str(tmp_path / "data"), "--trust", place, "--plain-http", place)
        pulling = start("artifacts", *options, "pull", f"{place}/some/image:latest", out=out, url=url)
        connection, _ = silent.accept()
        with connection:
            connection.settimeout(60)
            connection.recv(1)
            interrupt_without_pause(pulling)
    assert (pulling.returncode, out.read_text().count("Downloaded parts are kept")) == (130, 1), out.read_text()
    assert_quiet(out.read_text())


INTERRUPTED_AT_EVERY_LINE = """
import os, signal, sys
from corral.cli import main as cli

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def trace(frame, event, value):
    if event == "line" and frame.f_code.co_filename == cli.__file__:
        interrupt()
    return trace

def run():
    sys.settrace(trace)
    sys._getframe(1).f_trace = trace
    sys._getframe(2).f_trace = trace
    interrupt()
    return 0

cli._run = run
cli.main()
"""


def test_an_interrupt_at_any_line_that_handles_the_first_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_AT_EVERY_LINE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (130, "")


@pytest.mark.parametrize("after_s", [0.06, 0.1, 0.15, 0.2, 0.3])
def test_a_command_that_has_only_begun_ends_quietly(url: str, after_s: float, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        starting = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "corral", "ops", "watch", ID],
            stdout=file, stderr=subprocess.STDOUT, env=clean_environment(CORRAL_URL=url, CORRAL_API_KEY="k"),
        )  # fmt: skip
    # Python tells of an import when it is done: with the next one, the line after ours is reached, too.
    wait_until(lambda: out.read_text().partition(" signal\n")[2], what="our first lines are done", every_s=0.01)
    time.sleep(after_s)  # this is the person's finger, not a wait for something
    interrupt_twice(starting.pid, 0.01)
    assert starting.wait(timeout=30) in (130, -signal.SIGINT)
    assert "Traceback" not in out.read_text()


def test_up_ends_quietly_and_leaves_nothing(tmp_path: Path) -> None:
    up = Up(tmp_path)
    up.wait_ready()
    interrupt_without_pause(up.program.process)
    assert up.program.process.returncode == 0
    assert "Traceback" not in up.program.output()
    assert up.processes() == []
