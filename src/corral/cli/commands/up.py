"""`corral up`: a bus, a frontend and a worker on this machine, as child processes that are restarted when they exit."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from corral import __version__
from corral.cli.client.api import command_on
from corral.cli.client.last_run import LastRun, describe_changes, read_last_run, write_last_run
from corral.cli.client.settings_flags import read_settings, settings_options
from corral.cli.program_name import command
from corral.core.errors import CorralError, InvalidSetting
from corral.core.sizes import format_bytes
from corral.roles.frontend.exposure import check_exposure, local_url, public_url
from corral.roles.up.children import UpChildPlan
from corral.roles.up.supervisor import Spawn, UpChild, UpSupervisor, continue_small, print_line
from corral.settings.roles import UpSettings
from corral.settings.values import is_loopback_host, split_host_port
from corral.system import Clock, Disk, Ids, SystemClock, SystemDisk, SystemIds
from corral.system.children import spawn_child
from corral.system.http_client import get_json
from corral.system.listen import bind_socket, host_name
from corral.system.run import run_until_signal
from corral.system.secret_files import read_secret
from corral.telemetry.logs import configure_logs

READY_WITHIN_S = 60.0
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


def _describe(node: dict[str, Any]) -> str:
    memory = node.get("total_ram")
    about = [f"{node.get('cpu_count') or '?'} cores", f"{format_bytes(memory)} RAM" if memory else "RAM unknown"]
    return ", ".join([*about, *(gpu.get("name") or gpu["vendor"] for gpu in node.get("gpus", []))])


def _is_in_place(node: dict[str, Any]) -> bool:
    """Whether the node is connected. A node that is drained, or unhealthy because of its own disk or clock, counts."""
    drained = node["state"] == "draining" and bool(node["drain_requested"])
    return node["state"] == "healthy" or drained or (node["state"] == "unhealthy" and node["reachable"])


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
        with self._disk.hold(self._data, "up") as lock:
            self._check_ports()
            components = self._plan.everything(self._name)
            print_line(f"Corral {__version__}, data in {self._data}\n")
            self._remember()
            supervisor = UpSupervisor(
                components, self._data, spawn=self._spawn, clock=self._clock, ids=self._ids, disk=self._disk
            )
            main = asyncio.current_task()
            assert main is not None
            await supervisor.run(self._finish_start(components, began_s, lock, main))

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

    async def _finish_start(
        self, components: Sequence[UpChild], began_s: float, lock: int, main: asyncio.Task[None]
    ) -> None:
        await self._announce(components, began_s)
        await continue_small(components, self._data, lock=lock, main=main)

    async def _announce(self, components: Sequence[UpChild], began_s: float) -> None:
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
