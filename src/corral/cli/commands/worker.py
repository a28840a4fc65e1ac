"""`corral worker`: run the worker of this machine."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.cli.client.settings_flags import read_settings, settings_options
from corral.cli.program_name import command
from corral.core.errors import InvalidInput, InvalidSetting
from corral.settings.roles import WorkerSettings

if TYPE_CHECKING:
    from corral.worker.ports import WorkerPorts


@click.group("worker", invoke_without_command=True)
@settings_options(WorkerSettings)
@click.pass_context
def worker_command(context: click.Context, /, **flags: Any) -> None:
    """Join this machine to a fleet and run backends on it.

    The first time: corral worker --join http://frontend:8080 --token TOKEN. Later runs need no flags.
    The token may also come from CORRAL_JOIN_TOKEN or a file (--token-file), so that it is in no argument list."""
    if context.invoked_subcommand is not None:
        return
    settings = read_settings(WorkerSettings, flags)
    _check_own_directory(settings.data_dir)
    # structlog loads it for tracebacks we do not want: 5 MB for nothing, and a worker may run for years.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from corral.roles.worker import run_worker
    from corral.system.memory import share_malloc_arenas
    from corral.system.run import run_until_signal
    from corral.telemetry.logs import configure_logs

    share_malloc_arenas()
    configure_logs(level=settings.log_level, format=settings.log_format, role="worker")
    run_until_signal(lambda: run_worker(settings, _real_world()))


@worker_command.command("stop-backends")
@click.option("--data-dir", default=None, metavar="VALUE", help="The data directory of the worker that started them.")
@click.option("--config", type=click.Path(path_type=Path), default=None, help="Settings file (TOML). [CORRAL_CONFIG]")
@click.pass_context
def stop_backends_command(context: click.Context, data_dir: str | None, config: Path | None) -> None:
    """End the backends that a stopped worker left running."""
    before: dict[str, Any] = context.parent.params if context.parent is not None else {}
    flags = {"data_dir": data_dir or before.get("data_dir"), "config": config or before.get("config")}
    settings = read_settings(WorkerSettings, flags)
    from corral.system import SystemDisk
    from corral.system.run import run_interruptible

    if not SystemDisk().list(settings.data_dir):
        raise InvalidInput(f"{settings.data_dir} is no directory of a worker; name the worker's with --data-dir")
    click.echo(run_interruptible(lambda: _stop_backends(settings.data_dir)))


async def _stop_backends(data_dir: Path) -> str:
    from corral.system import SystemClock, SystemDisk, SystemIds
    from corral.worker.processes.cgroups import find_groups
    from corral.worker.processes.isolation import Isolation
    from corral.worker.processes.local import LocalProcesses, LocalSettings
    from corral.worker.processes.orphans import describe_orphans, stop_orphans

    with SystemDisk().hold(data_dir, "worker"):  # a worker that runs would start them again
        local = LocalSettings(state=data_dir / "run", environment={}, isolation=Isolation(setting="off"))
        processes = LocalProcesses(local, groups=find_groups(), clock=SystemClock(), ids=SystemIds())
        ended = await stop_orphans(processes)
    return f"Ended {describe_orphans(ended)}." if ended else f"No backend of {data_dir} was running."


def _check_own_directory(data_dir: Path) -> None:
    from corral.system import SystemDisk

    with suppress(PermissionError):  # what is another user's is told when the directory is opened
        if SystemDisk().read(data_dir / "keys" / "local.token") is None:
            return
        raise InvalidSetting(
            f"data_dir: {data_dir} belongs to a `{command('up')}`, which runs a worker of its own there. A second"
            " worker on this machine needs a directory of its own: --data-dir"
        )


def _real_world() -> "WorkerPorts":
    from corral.artifacts import Artifacts
    from corral.bus.client import connect_bus
    from corral.system import SystemClock, SystemDisk, SystemIds
    from corral.system.http_call import http_call
    from corral.worker.files.areas import Area
    from corral.worker.hardware import Roots
    from corral.worker.ports import WorkerPorts
    from corral.worker.processes.cgroups import find_groups
    from corral.worker.processes.isolation import find_isolation
    from corral.worker.processes.local import LocalProcesses

    clock, ids = SystemClock(), SystemIds()
    return WorkerPorts(
        clock=clock,
        ids=ids,
        disk=SystemDisk(),
        connect_bus=connect_bus,
        call_frontend=http_call,
        open_area=Area,
        open_fetch=lambda settings: Artifacts(settings, clock=clock, ids=ids),
        open_processes=lambda settings, nvml: LocalProcesses(
            settings, groups=find_groups(), clock=clock, ids=ids, nvml=nvml
        ),
        find_isolation=find_isolation,
        hardware=lambda models: Roots(disk=models),
        environment=dict(os.environ),
    )
