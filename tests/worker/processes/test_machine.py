"""The adapters one by one: control groups, ports, listeners, probes, environment, usage."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from corral.core.errors import InvalidSetting
from corral.core.processes.ports import NoPortLeft, PortSpan
from corral.core.processes.process import Fill, ProcessReadiness
from corral.system import SystemClock
from corral.worker.hardware.nvml import GpuProcess, NvmlError
from corral.worker.processes.cgroups import Groups, find_groups, open_group
from corral.worker.processes.environment import plan_environment
from corral.worker.processes.listeners import find_listener
from corral.worker.processes.machine_port import Listener
from corral.worker.processes.ports import Ports, can_bind, read_port_pool
from corral.worker.processes.readiness import HttpProbe, ListeningProbe, ProbeTarget
from corral.worker.processes.stats import read_gpu_memory_by_pid, read_tree_usage
from harness.ports import take_ports
from harness.scripted_nvml import ScriptedNvml
from harness.supervisor_bench import GROUPS, server, until

# Each child ends itself: were the kill under test to fail, nothing goes on forking.
FORKER = """
import os, sys, time
sys.stdin.read()  # until we are in the group
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        time.sleep(30)
        os._exit(0)
time.sleep(30)
"""


@pytest.fixture(params=["v2", "v1"])
def groups(request: pytest.FixtureRequest) -> Groups:
    found = GROUPS[request.param]()
    if found is None:
        pytest.skip(f"no control groups {request.param} here")
    return found


async def test_killing_a_group_ends_all_that_was_forked_in_it(groups: Groups) -> None:
    group = groups.make(f"test-{os.getpid()}")
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", FORKER, stdin=asyncio.subprocess.PIPE)
    try:
        (group.directory / "cgroup.procs").write_text(str(child.pid))
        assert child.stdin is not None
        child.stdin.close()
        await until(lambda: len(group.members()) == 21)
        assert not group.remove()  # while it has members
        group.kill()
        await child.wait()
        await until(lambda: group.members() == [])
    finally:
        group.kill()
        await child.wait()
        await until(group.remove)
    assert group.remove()  # twice is once
    assert group.members() == []
    assert type(open_group(group.directory)).__name__.startswith("GroupV")


def test_where_groups_cannot_be_made_there_are_none(tmp_path: Path) -> None:
    assert find_groups(tmp_path) is None
    proc = tmp_path / "proc/self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text("0::/app\n")
    (proc / "mountinfo").write_text("31 1 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n")
    assert find_groups(tmp_path) is None


def test_the_ephemeral_range_of_this_machine_is_left_out(tmp_path: Path) -> None:
    settings = tmp_path / "proc/sys/net/ipv4"
    settings.mkdir(parents=True)
    (settings / "ip_local_port_range").write_text("30000\t60999\n")
    (settings / "ip_local_reserved_ports").write_text("30005,30007-30008\n")
    pool = read_port_pool(PortSpan(29999, 30009), tmp_path)
    assert list(pool.candidates("k", now_s=0)) == [29999, 30005, 30007, 30008]
    with pytest.raises(InvalidSetting):
        read_port_pool(PortSpan(40000, 40010), tmp_path)
    assert list(read_port_pool(PortSpan(40000, 40001), tmp_path / "nowhere").candidates("k", now_s=0)) == [40000, 40001]


def test_a_port_is_free_unless_somebody_listens_on_any_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not can_bind(port)
    assert can_bind(port)


def test_ports_are_unique_and_come_back_only_after_their_quarantine() -> None:
    first = take_ports(3)
    ports = Ports(read_port_pool(PortSpan(first, first + 2)), SystemClock())
    taken = {key: ports.take(key) for key in "abc"}
    assert len(set(taken.values())) == 3
    ports.release(taken["a"], "a")
    with pytest.raises(NoPortLeft, match="2 in use, 1 in quarantine"):
        ports.take("d")


def test_a_listener_is_ours_foreign_or_nobodys() -> None:
    me = os.getpid()
    family = socket.AF_INET6
    with socket.create_server(("127.0.0.1", 0)) as four, socket.create_server(("::1", 0), family=family) as six:
        for one in (four, six):
            port = one.getsockname()[1]
            assert find_listener(port, lambda: [me], main_pid=me) is Listener.OURS
            assert find_listener(port, list, main_pid=me) is Listener.FOREIGN
            assert find_listener(port, lambda: [2**22 - 1], main_pid=me) is Listener.FOREIGN
    assert find_listener(port, lambda: [me], main_pid=me) is Listener.NOBODY


async def _answer(text: bytes) -> tuple[asyncio.Server, int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()
        writer.close()

    started = await asyncio.start_server(handle, "127.0.0.1", 0)
    return started, started.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("text", "ready", "detail"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True, ""),
        (b"HTTP/1.0 204 No Content\r\n\r\n", True, ""),
        (b"HTTP/1.1 503 Loading\r\n\r\n", False, "/health answers 503"),
        (b"SSH-2.0-OpenSSH\r\n", False, "the response is not HTTP"),
        (b"x" * 100_000, False, "/health: "),
        (b"", False, "the response is not HTTP"),
    ],
)
async def test_an_http_probe_believes_only_a_2xx(text: bytes, ready: bool, detail: str) -> None:
    started, port = await _answer(text)
    async with started:
        target = ProbeTarget(host="127.0.0.1", port=port, token="t")
        answer = await HttpProbe(ProcessReadiness(kind="http", path="/health")).check(target)
        assert answer.ready is ready
        assert detail in answer.detail


async def test_a_probe_of_a_silent_or_absent_server_ends_in_time() -> None:
    probe = HttpProbe(ProcessReadiness(kind="http", path="/health"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert (await ListeningProbe().check(ProbeTarget(host="127.0.0.1", port=port, token=""))).ready
        async with asyncio.timeout(30):
            answer = await probe.check(ProbeTarget(host="127.0.0.1", port=port, token="t"))
        assert "timed out" in answer.detail
    gone = ProbeTarget(host="127.0.0.1", port=port, token="t")
    assert not (await probe.check(gone)).ready
    assert not (await ListeningProbe().check(gone)).ready


def test_the_administrator_can_let_more_of_the_environment_through() -> None:
    inherited = {"PATH": "/bin", "HF_HOME": "/models", "SECRET": "s"}
    spec = server(environment={"ADDRESS": Fill("{host}:{port}"), "PLAIN": "{token}"})
    environment = plan_environment(spec, inherited, port=7, token="t", marker="m", home="/h", also=["HF_HOME"])
    assert environment["HF_HOME"] == "/models"
    assert environment["ADDRESS"] == "127.0.0.1:7"
    assert environment["PLAIN"] == "{token}"
    assert "SECRET" not in environment


class _Busy(ScriptedNvml):
    answers: Callable[[], list[GpuProcess]]

    def processes(self, index: int) -> list[GpuProcess]:
        return self.answers()


def test_gpu_memory_is_added_up_by_process_or_unknown() -> None:
    nvml = _Busy(devices=[{}, {}])
    me = psutil.Process()
    nvml.answers = lambda: [GpuProcess(me.pid, 100), GpuProcess(1, 7)]
    assert read_tree_usage([me], read_gpu_memory_by_pid(nvml)).gpu_memory_bytes == 200
    nvml.answers = lambda: [GpuProcess(me.pid, None)]
    assert read_tree_usage([me], read_gpu_memory_by_pid(nvml)).gpu_memory_bytes is None
    absent = ScriptedNvml(open_problem=NvmlError("absent", "no driver"))
    assert read_gpu_memory_by_pid(absent) is None


def test_usage_of_a_process_that_is_gone_is_left_out() -> None:
    child = subprocess.Popen(["sleep", "60"])
    process = psutil.Process(child.pid)
    child.send_signal(signal.SIGKILL)
    child.wait()
    usage = read_tree_usage([process, psutil.Process()], None)
    assert usage.processes == 1
    assert usage.memory_bytes > 1 << 20
