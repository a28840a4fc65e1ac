"""`corral up`: a bus, a frontend and a worker on this machine, as child processes that are restarted when they exit."""

import asyncio
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import click

from corral import __version__
from corral.cli.client.api import command_on
from corral.cli.client.last_run import LastRun, describe_changes, read_last_run, write_last_run
from corral.cli.client.settings_flags import read_settings, settings_options
from corral.cli.program_name import command
from corral.core.backoff import PROCESS_RESTARTS
from corral.core.errors import CorralError, InvalidSetting
from corral.core.sizes import format_bytes
from corral.roles.frontend.exposure import check_exposure, local_url, public_url
from corral.roles.up.children import UpChild, UpChildPlan
from corral.settings.roles import UpSettings
from corral.settings.values import is_loopback_host, split_host_port
from corral.system import Clock, Disk, Ids, SystemClock, SystemDisk, SystemIds
from corral.system.children import Child, bound_log, spawn_child
from corral.system.http_client import get_json
from corral.system.listen import bind_socket, host_name
from corral.system.run import run_until_signal
from corral.system.secret_files import read_secret
from corral.telemetry.logs import configure_logs

STOP_WITHIN_S = 12.0
# A worker waits for requests in flight, deregisters and stops its backends; a stuck backend takes 20 s.
WORKER_STOP_WITHIN_S = 40.0
READY_WITHIN_S = 60.0
STEADY_AFTER_S = 20.0
BOUND_LOGS_EVERY_S = 30.0
SPAWN_RETRY_S = 10.0
LOOK_AT_DISK_EVERY_S = 3.0
FULL_BELOW_BYTES = 4 << 20
# Exit codes that mean that a restart does not help.
PERMANENT_FAILURES = (2, 3)
JOINED = ("node.registered", "node.returned")


@click.command("up")
@settings_options(UpSettings)
def up_command(**flags: Any) -> None:
    """Run the message bus, frontend, web UI and a worker here.

    Set other settings of the frontend or the worker (see `corral frontend --help` and `corral worker --help`) with
    their CORRAL_... variables, or in the tables [frontend] and [worker] of the settings file."""
    if flags["config"] is not None:
        os.environ["CORRAL_CONFIG"] = str(flags["config"].absolute())  # the components read it too
    settings = read_settings(UpSettings, flags)
    check_exposure(settings.listen, auth=settings.auth)
    configure_logs(level="warning", format=settings.log_format, role="up")
    run_until_signal(Up(settings, spawn=spawn_child, clock=SystemClock(), ids=SystemIds(), disk=SystemDisk()).run)


def print_line(text: str = "") -> None:
    try:
        click.echo(text)
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.ENOSPC:  # the output is a file on a full disk: no reason to stop
            raise


class Spawn(Protocol):
    async def __call__(self, command: Sequence[str], *, environment: Mapping[str, str], log_path: Path) -> Child: ...


def _describe(node: dict[str, Any]) -> str:
    memory = node.get("total_ram")
    about = [f"{node.get('cpu_count') or '?'} cores", f"{format_bytes(memory)} RAM" if memory else "RAM unknown"]
    return ", ".join([*about, *(gpu.get("name") or gpu["vendor"] for gpu in node.get("gpus", []))])


def _is_in_place(node: dict[str, Any]) -> bool:
    """Whether the node is connected. A node that is drained, or unhealthy because of its own disk or clock, counts."""
    drained = node["state"] == "draining" and bool(node["drain_requested"])
    return node["state"] == "healthy" or drained or (node["state"] == "unhealthy" and node["reachable"])


class ComponentFailed(CorralError):
    code = "component_failed"


class Up:
    def __init__(self, settings: UpSettings, *, spawn: Spawn, clock: Clock, ids: Ids, disk: Disk) -> None:
        self._settings = settings
        self._spawn = spawn
        self._clock = clock
        self._ids = ids
        self._disk = disk
        self._data = settings.data_dir
        self._host, self._port = split_host_port(settings.listen)
        self._loopback = is_loopback_host(self._host)
        self._last = read_last_run(disk, settings.data_dir)
        self._name = settings.name or (self._last.name if self._last is not None else host_name())
        self._local_url = local_url(settings.listen)
        self._plan = UpChildPlan(settings, clock=clock, ids=ids, disk=disk)

    async def run(self) -> None:
        began_s = self._clock.monotonic_s()
        with self._disk.hold(self._data, "up"):
            self._check_ports()
            components = self._plan.everything(self._name)
            print_line(f"Corral {__version__}, data in {self._data}\n")
            self._remember()
            try:
                await self._run_components(components, began_s)
            finally:
                print_line("\nStopping ...")
                await self._stop(components)
                print_line("Everything has stopped.")

    def _remember(self) -> None:
        now = LastRun(name=self._name, listen=self._settings.listen, bus_port=self._settings.bus_port)
        if self._last is not None:
            given = self._settings.name is not None
            for line in describe_changes(self._last, now, name_given=given, host_name=host_name()):
                print_line(line)
        if now != self._last:
            write_last_run(self._disk, self._data, now)

    def _check_ports(self) -> None:
        if self._port == self._settings.bus_port:
            raise InvalidSetting(f"--bus-port: port {self._port} is already used by --listen; choose another one")
        bind_socket(self._host, self._port, setting="--listen").close()
        bind_socket(self._host, self._settings.bus_port, setting="--bus-port").close()

    async def _run_components(self, components: list[UpChild], began_s: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for component in components:
                tasks.create_task(self._keep(component), name=component.name)
            tasks.create_task(self._announce(components, began_s), name="announce")
            tasks.create_task(self._bound_logs(components), name="logs")
            tasks.create_task(self._watch_disk(), name="disk")

    async def _keep(self, component: UpChild) -> None:
        failures = 0
        while True:
            started_s = self._clock.monotonic_s()
            try:
                component.child = await self._spawn(
                    component.command, environment=component.environment, log_path=component.log_path
                )
            except OSError as error:
                if not component.ready.is_set():
                    raise ComponentFailed(f"the {component.name} cannot start: {error}") from error
                print_line(f"The {component.name} cannot start: {error}. Retrying in {SPAWN_RETRY_S:.0f} s.")
                await asyncio.sleep(SPAWN_RETRY_S)
                continue
            code = await component.child.wait()
            if not component.ready.is_set() and code in PERMANENT_FAILURES:
                raise ComponentFailed(f"the {component.name} cannot start:\n{component.child.read_log_tail()}")
            lasted_s = self._clock.monotonic_s() - started_s
            failures = 1 if lasted_s > STEADY_AFTER_S else failures + 1
            delay_s = PROCESS_RESTARTS.delay_s(failures, self._ids.draw())
            how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            print_line(f"The {component.name} {how}; restarting in {delay_s:.1f} s. Log: {component.log_path}")
            last = component.child.read_log_tail(1).strip()
            if last and code > 0:
                print_line(f"  Last line: {last}")
            await asyncio.sleep(delay_s)

    async def _announce(self, components: list[UpChild], began_s: float) -> None:
        key_path = self._data / "keys" / "admin.key"
        node = await self._wait_for_node(key_path)
        for component in components:
            component.ready.set()
        took_s = self._clock.monotonic_s() - began_s
        url = public_url(self._settings.public_url, self._settings.listen)
        print_line(f"Ready in {took_s:.1f} s: node {node['name']} is {node['state']} ({_describe(node)})")
        for condition in node["conditions"]:
            print_line(f"  The node gets no new models: {condition['reason']}. {condition['remedy']}")
        if node["isolation"] != "full":
            print_line(f"  {node['isolation_reason']}")
        if node["drain_requested"]:
            resume = command_on(f"nodes resume {node['name']}", self._data)
            print_line(f"  The node is drained and gets no work until: {resume}")
        print_line()
        print_line(f"  Web UI and API  {url}")
        print_line(f"  Admin key       {key_path if self._settings.auth else 'not required (--no-auth)'}")
        key = read_secret(self._disk, key_path)
        token = (await get_json(f"{self._local_url}/api/join-command", bearer=key))["token"]
        print_line(f"  Add a node      {command(f'worker --join {url} --token {token}')}")
        if self._loopback:
            wider = self._command(listen=f"0.0.0.0:{self._port}")
            print_line(
                f"                  (only on this machine, with another --data-dir; `{wider}` lets other machines join)"
            )
        if not self._settings.auto_approve:
            print_line(f"                  then approve it here: {command_on('nodes approve NAME', self._data)}")
        if not await get_json(f"{self._local_url}/api/models", bearer=key):
            print_line(f"  Chat            {command_on('chat', self._data)}")
            print_line("                  (in another terminal; it offers to install a small model)")
        print_line("\nCtrl-C stops everything.")

    def _command(self, *, listen: str) -> str:
        """The command of this run with another listen address."""
        run = LastRun(name=self._name, listen=listen, bus_port=self._settings.bus_port)
        return " ".join([command_on("up", self._data), *run.flags()])

    async def _wait_for_node(self, key_path: Path) -> dict[str, Any]:
        """Waits until this run's worker is connected, which also proves that bus and frontend work.

        The node of an earlier run that was killed may still count as healthy; it must have joined in this run."""
        began = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat().replace("+00:00", "Z")
        deadline_s = self._clock.monotonic_s() + READY_WITHIN_S
        reported = False
        while True:
            try:
                key = read_secret(self._disk, key_path)
                problem = f"node {self._name} has not joined yet"
                for node in await get_json(f"{self._local_url}/api/nodes", bearer=key):
                    if node["name"] != self._name:
                        continue
                    if _is_in_place(node) and await self._has_joined(node["id"], began, key):
                        return dict(node)
                    problem = f"node {self._name} is {node['status']} ({node['status_reason'] or 'not rejoined yet'})"
            except CorralError as error:
                problem = str(error)
            if self._clock.monotonic_s() > deadline_s and not reported:
                reported = True
                print_line(
                    f"Still not ready after {READY_WITHIN_S:.0f} s: {problem}. See the logs in {self._data / 'logs'}."
                )
            await asyncio.sleep(0.05)

    async def _has_joined(self, node_id: str, since: str, key: str | None) -> bool:
        """Whether the node has joined since this run began, by the audit log."""
        events = await get_json(f"{self._local_url}/api/audit?limit=1000&since={since}", bearer=key)
        return any(event["subject"] == node_id and event["action"] in JOINED for event in events)

    async def _bound_logs(self, components: list[UpChild]) -> None:
        while True:
            for component in components:
                await asyncio.to_thread(bound_log, component.log_path)
            await asyncio.sleep(BOUND_LOGS_EVERY_S)

    async def _watch_disk(self) -> None:
        """Reports a full disk, because components that cannot write their logs cannot report it."""
        full = False
        while True:
            free = await asyncio.to_thread(self._disk.free_bytes, self._data)
            if free < FULL_BELOW_BYTES and not full:
                full = True
                print_line(
                    f"The disk of {self._data} is full ({format_bytes(free)} left): Corral cannot write, so changes"
                    " fail and nodes may appear offline. Free disk space; Corral then continues automatically."
                )
            elif full and free > 2 * FULL_BELOW_BYTES:
                full = False
                print_line(f"The disk of {self._data} has free space again ({format_bytes(free)}).")
            await asyncio.sleep(LOOK_AT_DISK_EVERY_S)

    async def _stop(self, components: list[UpChild]) -> None:
        """Stops the worker first, so that it can deregister at the frontend, and the bus last."""
        for component in reversed(components):
            if component.child is not None:
                await component.child.stop(
                    within_s=WORKER_STOP_WITHIN_S if component.name == "worker" else STOP_WITHIN_S
                )
