"""Tables and messages of the command line."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from corral.cli.display.output import fit_widths
from harness.programs import clean_environment, run_cli

pytestmark = pytest.mark.processes

GIB = 1 << 30
NODE = {
    "id": "0d8f8a52-6a0b-4b0f-9d3f-6a6f0d1c2b3a",
    "name": "a-machine-with-a-rather-long-name.example.internal",
    "status": "unhealthy",
    "state": "unhealthy",
    "conditions": [],
    "node_type": "backend",
    "capability": "nvidia-cuda-12",
    "available_vram": 4 * GIB,
    "total_vram": 24 * GIB,
    "available_ram": 60 * GIB,
    "total_ram": 64 * GIB,
    "available_disk": None,
    "total_disk": 900 * GIB,
    "model_count": 2,
    "last_seen_age_s": 4.2,
    "status_reason": "it does not answer on the message bus; it may have died, or lost its way to the bus",
    "conflict": None,
    "refused": None,
    "claims": [],
}


class _Nodes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps([NODE]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Any:
    server = HTTPServer(("127.0.0.1", 0), _Nodes)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run_on_terminal(*arguments: str, columns: int) -> str:
    leader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in clean_environment().items() if key not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "corral", *arguments]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert process.wait(30) == 0, shown
    return shown.decode()


@pytest.mark.parametrize("columns", [80, 100, 132])
def test_a_table_fits_the_terminal(url: str, columns: int) -> None:
    shown = run_on_terminal("nodes", "list", "--url", url, columns=columns)
    lines = shown.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= columns
    for whole in ("unhealthy", "20/24G", "4.0/64G", "?/900G", "0d8f8a52"):
        assert whole in lines[1]


def test_in_a_pipe_nothing_is_cut_and_used_memory_is_shown(url: str) -> None:
    line = run_cli("nodes", "list", "--url", url).stdout.splitlines()[1]
    assert str(NODE["name"]) in line
    assert str(NODE["status_reason"]) in line
    assert "20/24G" in line
    assert "4.0/64G" in line
    assert "?/900G" in line


def test_the_widest_column_is_narrowed_first() -> None:
    assert fit_widths([10, 40, 5], 40, may_cut=(0, 1, 2)) == [10, 21, 5]
    assert fit_widths([10, 10, 5], 80, may_cut=(0, 1, 2)) == [10, 10, 5]
    assert fit_widths([30, 30, 30], 10, may_cut=(0, 2)) == [5, 30, 5]


def test_an_unknown_variable_is_reported() -> None:
    environment = clean_environment(CORRAL_HEARTBEAT_INTERVALL="5s", CORRAL_JOIN="nonsense")
    told = run_cli("worker", environment=environment)
    assert told.returncode == 2
    assert "CORRAL_HEARTBEAT_INTERVALL" in told.stderr
    assert "did you mean CORRAL_HEARTBEAT_INTERVAL?" in told.stderr


def test_the_help_shows_how_to_keep_the_token_out_of_the_argument_list() -> None:
    shown = run_cli("join-command", "--help").stdout
    assert "CORRAL_JOIN_TOKEN" in shown
    assert "--token-file" in shown
