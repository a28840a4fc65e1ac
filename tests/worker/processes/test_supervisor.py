"""Starting, serving, crashing and stopping, with real children."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.core.errors import InvalidInput
from corral.core.processes.process import (
    AlreadyRunning,
    BackingOff,
    Failed,
    Fill,
    ProcessKey,
    ProcessReadiness,
    ProcessStarting,
    ProcessStopped,
    ProcessView,
    Ready,
    StartFailed,
    StopFailed,
    Stopping,
)
from corral.worker.processes.records import read_start_ticks
from harness.machine_speed import promised
from harness.streams import connect
from harness.supervisor_bench import READY, Bench, open_to_all, script, server, until

KEY = ProcessKey("model#0")


async def test_a_process_is_started_ready_and_stopped(any_bench: Bench) -> None:
    async with any_bench.supervisor() as supervisor:
        running = await supervisor.start(server())
        assert [type(view.state) for view in supervisor.list()] == [Ready]
        assert supervisor.running(KEY) == running
        assert await supervisor.stop(KEY, reason="not needed")
        assert supervisor.list() == ()
        assert any_bench.ports is not None
        assert any_bench.ports.in_use == {}
    assert any_bench.markers() == []
    assert not psutil.pid_exists(running.pid)
    assert [type(view.state) for view in any_bench.changes] == [ProcessStarting, Ready, Stopping, ProcessStopped]


async def test_identical_starts_at_once_make_one_process(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        found = await asyncio.gather(*(supervisor.start(server()) for _ in range(6)))
        assert len({running.pid for running in found}) == 1
        assert len(bench.markers()) == 1


async def test_another_version_of_a_running_key_is_refused(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        await supervisor.start(server())
        with pytest.raises(AlreadyRunning, match="sha256:1, not sha256:2"):
            await supervisor.start(server(version_digest="sha256:2"))


async def test_an_early_exit_tells_the_code_and_the_last_words(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed) as problem:
            await supervisor.start(script("model#0", "echo fine; echo 'no such model: x.gguf' >&2; exit 3"))
        assert problem.value.failed.last.code == 3
        assert problem.value.failed.stderr_tail == ("no such model: x.gguf",)
        assert "exit code 3" in str(problem.value)
        assert "no such model" in str(problem.value)
        assert [type(view.state) for view in supervisor.list()] == [Failed]
        await supervisor.start(server())  # a failure does not stand in the way of the next try
    assert bench.markers() == []


async def test_a_program_that_cannot_be_run_says_why(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "run.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed, match=r"run\.sh: Permission denied"):
            await supervisor.start(server(command=(str(program),)))
        with pytest.raises(StartFailed, match="program 'no-such-program' not found"):
            await supervisor.start(server(command=("no-such-program",)))
        with pytest.raises(StartFailed, match="No such file"):
            await supervisor.start(server(directory=str(tmp_path / "nowhere")))
        assert bench.ports is not None
        assert bench.ports.in_use == {}
    assert bench.markers() == []


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"within_s": 0.3}, "not ready within 0 s"), ({"quiet_within_s": 0.3}, "no activity for 0 s")],
)
async def test_a_process_that_never_gets_ready_is_ended(bench: Bench, limits: dict[str, Any], words: str) -> None:
    readiness = ProcessReadiness(kind="http", path="/health", **limits)
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed, match=words):
            await supervisor.start(script("model#0", "sleep 60", readiness=readiness))
        assert bench.left_over() == []


async def test_a_process_that_accepts_any_token_is_not_believed(bench: Bench) -> None:
    readiness = ProcessReadiness(kind="http", path="/health", refuses_wrong_token=True, within_s=5)
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed, match="answers 200 to a wrong token"):
            await supervisor.start(server("model#0", "no-token", readiness=readiness))


async def test_a_listener_is_enough_where_nothing_better_can_be_asked(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        running = await supervisor.start(server(readiness=ProcessReadiness(kind="listening")))
        assert running.port in range(bench.first_port, bench.first_port + bench.port_count)


async def test_a_crash_is_followed_by_a_fresh_process_on_the_first_try(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        first = await supervisor.start(server())
        await kill(first.pid)
        second = await supervisor.start(server())
        assert second.pid != first.pid
        assert second.token != first.token
        backing_off = [view.state for view in bench.changes if isinstance(view.state, BackingOff)]
        # Once at once, before anything is cleared up, and once with how long it waits.
        assert [state.last.signal for state in backing_off] == [signal.SIGKILL] * 2
        assert [state.delay_s == 0 for state in backing_off] == [True, False]
        view = supervisor.get(KEY)
        assert view is not None
        assert view.restarts == 1


async def test_a_process_killed_behind_our_back_is_not_called_running(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        running = await supervisor.start(server())
        await kill(running.pid)
        assert supervisor.running(KEY) != running


async def tell_to_end(port: int | None) -> None:
    assert port is not None
    reader, writer = await connect(port)
    writer.write(b"GET /end HTTP/1.1\r\n\r\n")
    await reader.read()
    writer.close()


async def test_crashes_beyond_the_budget_end_as_failed_with_the_reason(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        await supervisor.start(server("model#0", "exit-when-told", "7"))
        ended: set[int | None] = set()
        for _ in range(1 + bench.policy.budget):
            await until(lambda: isinstance(supervisor.list()[0].state, Ready) and supervisor.list()[0].pid not in ended)
            view = supervisor.list()[0]
            ended.add(view.pid)
            await tell_to_end(view.port)
        await until(lambda: isinstance(supervisor.list()[0].state, Failed))
        failed = supervisor.list()[0].state
        assert isinstance(failed, Failed)
        assert failed.last.code == 7
        assert failed.stderr_tail[-1] == "I cannot go on"
        assert "4 times within" in failed.reason
        starts = [view for view in bench.changes if isinstance(view.state, ProcessStarting)]
        assert len(starts) == 1 + bench.policy.budget
    assert bench.markers() == []


async def test_a_stop_while_waiting_to_restart_is_obeyed(bench: Bench) -> None:
    bench.policy = replace(bench.policy, base_s=60, cap_s=60)
    async with bench.supervisor() as supervisor:
        running = await supervisor.start(server())
        os.kill(running.pid, signal.SIGKILL)
        await until(lambda: isinstance(supervisor.list()[0].state, BackingOff))
        assert await supervisor.stop(KEY, reason="enough")
        assert supervisor.list() == ()
    assert bench.markers() == []


async def test_a_stop_while_starting_is_obeyed(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        starting = asyncio.ensure_future(supervisor.start(server("model#0", "slow", "60")))
        await until(lambda: supervisor.list() and supervisor.list()[0].pid)
        assert await supervisor.stop(KEY, reason="changed my mind")
        with pytest.raises(Exception, match="changed my mind"):
            await starting
    assert bench.markers() == []


async def test_a_stop_of_what_is_not_there_is_no_error(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        assert not await supervisor.stop(ProcessKey("nothing"), reason="sweep")
        await supervisor.start(server())
        both = await asyncio.gather(supervisor.stop(KEY, reason="a"), supervisor.stop(KEY, reason="b"))
        assert list(both) == [True, True]


@pytest.mark.parametrize("trick", ["ignore-term", "helper", "escaped-helper", "forgetful-helper"])
async def test_stop_ends_the_whole_tree_whatever_it_does(any_bench: Bench, trick: str) -> None:
    any_bench.grace_s = 0.3
    async with any_bench.supervisor() as supervisor:
        running = await supervisor.start(server("model#0", trick))
        members = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
        if "helper" in trick:
            members.append(await helper_of(any_bench))
        with promised("the stop", within_s=5):
            await supervisor.stop(KEY, reason="test")
    assert not [process.pid for process in members if process.is_running()]


async def test_helpers_go_when_their_process_crashes(any_bench: Bench) -> None:
    async with any_bench.supervisor() as supervisor:
        running = await supervisor.start(server("model#0", "escaped-helper"))
        helper = await helper_of(any_bench)
        os.kill(running.pid, signal.SIGKILL)
        await until(lambda: not helper.is_running())


async def test_the_backend_goes_when_its_shim_is_killed_and_comes_back(any_bench: Bench) -> None:
    async with any_bench.supervisor() as supervisor:
        running = await supervisor.start(server("model#0", "escaped-helper"))
        helper, process = await helper_of(any_bench), psutil.Process(running.pid)
        shim = process.parent()
        assert shim is not None
        await kill(shim.pid)
        again = await supervisor.start(server("model#0", "escaped-helper"))
        assert again.pid != running.pid
        await until(lambda: not helper.is_running() and not process.is_running())  # the init process reaps them


async def kill(pid: int) -> None:
    """A signal is not a death: the process may run on for a moment."""
    os.kill(pid, signal.SIGKILL)
    await until(lambda: read_start_ticks(pid) is None)


async def helper_of(bench: Bench) -> psutil.Process:
    (marker,) = bench.markers()
    note = bench.state / "processes" / marker / "home" / "helper"
    await until(lambda: note.exists() and note.read_text())
    return psutil.Process(int(note.read_text()))


async def test_a_requested_stop_is_on_disk_before_the_signal(bench: Bench, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    bench.isolation = "off"  # it looks at what is not its own
    text = f"trap 'cp $HOME/../record.json {seen}; exit 0' TERM; sleep 60 & wait"
    async with bench.supervisor() as supervisor:
        starting = asyncio.ensure_future(supervisor.start(script("model#0", text)))
        await until(lambda: supervisor.list() and supervisor.list()[0].pid)
        await until(lambda: len(psutil.Process(supervisor.list()[0].pid).children()) == 1)
        await supervisor.stop(KEY, reason="told to")
        await asyncio.wait([starting])
        assert starting.exception() is not None
    record = json.loads(seen.read_text())
    assert (record["desired"], record["reason"]) == ("stopped", "told to")


async def test_an_unload_that_hangs_or_fails_does_not_block_the_stop(bench: Bench) -> None:
    async def hang(_: ProcessView) -> None:
        await asyncio.sleep(3600)

    async def fail(view: ProcessView) -> None:
        assert isinstance(view.state, Stopping)
        raise RuntimeError("unload failed")

    async with bench.supervisor() as supervisor:
        supervisor._context = replace(supervisor._context, before_stop_within_s=0.2)
        for before in (hang, fail):
            await supervisor.start(server())
            assert await supervisor.stop(KEY, reason="test", before=before)


async def test_a_foreign_process_that_takes_the_port_meanwhile_is_not_mistaken_for_ours(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        starting = asyncio.ensure_future(supervisor.start(server("model#0", "slow", "1")))
        await until(lambda: supervisor.list() and supervisor.list()[0].port)
        taken = supervisor.list()[0].port
        assert taken is not None
        with socket.create_server(("127.0.0.1", taken)) as stranger:
            stranger.settimeout(0)
            running = await starting
            assert running.port != taken
            with pytest.raises(BlockingIOError):  # nobody even knocked: our token went to no stranger
                stranger.accept()


async def test_a_caller_who_leaves_does_not_stop_the_process(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        starting = asyncio.ensure_future(supervisor.start(server("model#0", "slow", "0.3")))
        await until(lambda: supervisor.list() and supervisor.list()[0].pid)
        starting.cancel()
        await until(lambda: isinstance(supervisor.list()[0].state, Ready))


async def test_the_environment_of_a_child_is_clean(bench: Bench) -> None:
    bench.environment |= {"CORRAL_TOKEN": "canary", "AWS_SECRET_ACCESS_KEY": "canary", "LC_ALL": "C.UTF-8"}
    bench.environment |= {"https_proxy": "http://user:canary@proxy:1", "no_proxy": "localhost"}
    text = (
        'env | sort; echo "dir $PWD"; echo "fds $(ls /proc/$$/fd | tr "\\n" " ")"; cut -d" " -f6 /proc/$$/stat; exit 1'
    )
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed):
            await supervisor.start(script("model#0", text))
        lines = [line.text for line in supervisor.logs.of(KEY).tail()]
        assert "canary" not in "\n".join(lines)
        names = {line.partition("=")[0] for line in lines if "=" in line}
        assert names - {"PWD", "_", "SHLVL", "OLDPWD"} == {
            *("PATH", "LC_ALL", "no_proxy", "HOME", "TMPDIR", "PYTHONUNBUFFERED", "TOKEN", "CORRAL_PROCESS"),
        }
        assert any(line.startswith("dir ") and line.endswith("/home") for line in lines)
        fds = next(line for line in lines if line.startswith("fds ")).split()[1:]
        assert set(fds) <= {"0", "1", "2", "3"}  # the listing itself opens the fourth
        assert int(lines[-1]) != os.getsid(0)


async def test_no_option_loads_foreign_code_into_a_backend(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed, match="LD_PRELOAD must not be set"):
            await supervisor.start(server(environment={"LD_PRELOAD": "/tmp/evil.so"}))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
async def test_a_process_can_run_as_its_own_user(any_bench: Bench, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    async with any_bench.supervisor() as supervisor:
        with pytest.raises(StartFailed):
            await supervisor.start(script("model#0", "id -un; touch $HOME/mine && echo written; exit 1", user="nobody"))
        lines = [line.text for line in supervisor.logs.of(KEY).tail()]
        assert lines == ["nobody", "written"]
        with pytest.raises(StartFailed, match="no user 'nosuchuser'"):
            await supervisor.start(server(user="nosuchuser"))


async def test_exhausted_ports_are_a_clear_error(bench: Bench) -> None:
    bench.port_count = 2
    async with bench.supervisor() as supervisor:
        await asyncio.gather(supervisor.start(server("a#0")), supervisor.start(server("b#0")))
        with pytest.raises(StartFailed, match=r"No port is free in .*: 2 in use"):
            await supervisor.start(server("c#0"))
        await supervisor.stop(ProcessKey("a#0"), reason="room")
        with pytest.raises(StartFailed, match="1 in use, 1 in quarantine"):
            await supervisor.start(server("c#0"))


async def test_a_foreign_listener_is_skipped(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", bench.first_port)):
        async with bench.supervisor() as supervisor:
            assert (await supervisor.start(server())).port == bench.first_port + 1


async def test_a_restart_that_finds_no_port_waits_and_tries_again(bench: Bench) -> None:
    bench.port_count, bench.quarantine_s = 1, 0.3
    bench.policy = replace(bench.policy, base_s=0.1, cap_s=0.2, budget=9)
    async with bench.supervisor() as supervisor:
        first = await supervisor.start(server())
        await kill(first.pid)
        second = await supervisor.start(server())
        assert second.pid != first.pid
        problems = [view.state.last.problem or "" for view in bench.changes if isinstance(view.state, BackingOff)]
        assert any("in quarantine" in problem for problem in problems)
    assert bench.markers() == []


async def test_a_process_from_a_replaced_directory_is_not_called_running(bench: Bench, tmp_path: Path) -> None:
    directory = tmp_path / "version"
    directory.mkdir()
    spec = server(directory=str(directory))
    async with bench.supervisor() as supervisor:
        running = await supervisor.start(spec)
        assert supervisor.running(KEY) == running
        directory.rename(tmp_path / "old")
        directory.mkdir()
        assert supervisor.running(KEY) is None
        with pytest.raises(AlreadyRunning, match="a directory that has been replaced"):
            await supervisor.start(spec)
        await supervisor.stop(KEY, reason="replaced")
        assert (await supervisor.start(spec)).pid != running.pid


async def test_without_descriptors_a_start_is_refused_and_works_again_later(bench: Bench) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with bench.supervisor() as supervisor:
        await supervisor.start(server("warm#0"))  # threads and modules are there
        resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + 2, limit[1]))
        try:
            with pytest.raises(StartFailed, match=r"cannot start another process now: .*Too many"):
                await supervisor.start(server())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        await supervisor.start(server())
        assert len(bench.left_over()) == 4  # two servers and their shims


async def test_a_stop_without_descriptors_is_not_called_done(bench: Bench) -> None:
    bench.retry_stop_after_s = 0.05
    async with bench.supervisor() as supervisor:
        running = await supervisor.start(server("model#0", "ignore-term"))
        with no_descriptors(), pytest.raises(StopFailed, match=rf"{running.pid} may still run: .*Too many open files"):
            await supervisor.stop(KEY, reason="test", grace_s=0)
        await until(lambda: supervisor.list() == ())  # tried again by itself
        assert not psutil.pid_exists(running.pid)


async def test_a_second_stop_does_not_wait_for_the_next_try_of_the_first(bench: Bench) -> None:
    bench.retry_stop_after_s = 3600.0
    async with bench.supervisor() as supervisor:
        running = await supervisor.start(server())
        with no_descriptors(), pytest.raises(StopFailed):
            await supervisor.stop(KEY, reason="test", grace_s=0)
        assert await supervisor.stop(KEY, reason="test")
        assert not psutil.pid_exists(running.pid)


async def test_a_process_is_not_taken_for_dead_for_want_of_a_descriptor(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        running = await supervisor.start(server())
        handle = (await bench.processes().survivors())[0]
        with no_descriptors():
            assert supervisor.running(KEY) == running
            ended = asyncio.ensure_future(handle.wait())
            done, _ = await asyncio.wait({ended}, timeout=0.5)
            assert not done
        assert supervisor.running(KEY) == running
        await supervisor.stop(KEY, reason="test")
        async with asyncio.timeout(40):
            await ended


async def test_refused_starts_leave_no_descriptors_open(bench: Bench) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with bench.supervisor() as supervisor:
        await supervisor.start(server("warm#0"))
        await supervisor.start(server())
        await supervisor.stop(KEY, reason="test")  # and what watches the other is there as well
        before = psutil.Process().num_fds()
        for spare in range(1, 8):  # each time it is another that is missing
            resource.setrlimit(resource.RLIMIT_NOFILE, (before + spare, limit[1]))
            try:
                with contextlib.suppress(StartFailed):
                    await supervisor.start(server())
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            await supervisor.stop(KEY, reason="test")
        assert psutil.Process().num_fds() <= before


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


async def test_memory_and_processor_time_of_the_tree_are_sampled(bench: Bench) -> None:
    busy = f"{sys.executable} -ISc 'while True: pass' & exec sleep 60"
    readiness = ProcessReadiness(kind="http", path="/health")
    async with bench.supervisor() as supervisor:
        starting = asyncio.ensure_future(supervisor.start(script("model#0", busy, readiness=readiness)))
        await until(lambda: supervisor.list() and supervisor.list()[0].pid)
        first = (await supervisor.sample())[KEY]
        async with asyncio.timeout(60):
            while (usage := (await supervisor.sample())[KEY]).cpu_s < first.cpu_s + 0.2:
                assert usage.processes in (1, 2)
        assert usage.processes == 2
        assert 1 << 20 < usage.memory_bytes < 1 << 28
        assert usage.gpu_memory_bytes is None
        await supervisor.stop(KEY, reason="seen")
        await asyncio.wait([starting])
        assert starting.exception() is not None


async def test_a_command_part_is_filled_and_another_is_left_alone(bench: Bench) -> None:
    spec = script("model#0", 'echo "$0 $1"; exit 1')
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed):
            await supervisor.start(server(command=(*spec.command, Fill("{host}:{port}"), "{port}; $(id)")))
        assert supervisor.logs.of(KEY).tail()[0].text == f"127.0.0.1:{bench.first_port} {{port}}; $(id)"


async def test_a_spec_without_command_is_refused_before_anything_happens() -> None:
    with pytest.raises(InvalidInput):
        server(command=())
    assert READY.refuses_wrong_token
