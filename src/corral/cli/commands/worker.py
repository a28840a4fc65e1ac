"""`corral worker`: run the worker of this machine."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog

from corral.cli.client.settings_flags import read_settings, settings_options
from corral.cli.program_name import command
from corral.core.errors import InvalidInput, InvalidSetting
from corral.settings.reading import find_ignored
from corral.settings.roles import WorkerSettings

if TYPE_CHECKING:
    from corral.worker.ports import WorkerPorts

log = structlog.get_logger()


@click.group("worker", invoke_without_command=True)
@settings_options(WorkerSettings)
@click.pass_context
def worker_command(context: click.Context, /, **flags: Any) -> None:
    """Join this machine to a cluster and run backends on it.

    The first time, run: corral worker --join http://frontend:8080 --token TOKEN. Later runs need no flags. To keep the
    token out of the argument list, set CORRAL_JOIN_TOKEN or use --token-file."""
    if context.invoked_subcommand is not None:
        return
    settings = read_settings(WorkerSettings, flags)
    _check_own_directory(settings.data_dir)
    # Without this, structlog would load it for tracebacks: 5 MiB that a worker does not need.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from corral.roles.worker import run_worker
    from corral.system.memory import share_malloc_arenas
    from corral.system.run import run_until_signal
    from corral.telemetry.logs import configure_logs

    share_malloc_arenas()
    configure_logs(level=settings.log_level, format=settings.log_format, role="worker")
    for warning in find_ignored(os.environ, settings.data_dir):
        log.warning("setting.ignored", warning=warning)
    run_until_signal(lambda: run_worker(settings, _real_ports()))


@worker_command.command("stop-backends")
@click.option(
    "--data-dir", default=None, metavar="VALUE", help="Data directory of the worker that started the backends."
)
@click.option("--config", type=click.Path(path_type=Path), default=None, help="Settings file (TOML). [CORRAL_CONFIG]")
@click.pass_context
def stop_backends_command(context: click.Context, data_dir: str | None, config: Path | None) -> None:
    """Stop the backends that a stopped worker left running."""
    before: dict[str, Any] = context.parent.params if context.parent is not None else {}
    flags = {"data_dir": data_dir or before.get("data_dir"), "config": config or before.get("config")}
    settings = read_settings(WorkerSettings, flags)
    from corral.system import SystemDisk
    from corral.system.run import run_interruptible

    if not SystemDisk().list(settings.data_dir):
        raise InvalidInput(f"{settings.data_dir} is not a worker's data directory; pass the right one with --data-dir")
    click.echo(run_interruptible(lambda: _stop_backends(settings.data_dir)))


async def _stop_backends(data_dir: Path) -> str:
    from corral.system import SystemClock, SystemDisk, SystemIds
    from corral.worker.processes.cgroups import find_groups
    from corral.worker.processes.isolation import Isolation
    from corral.worker.processes.local import LocalProcesses, LocalSettings
    from corral.worker.processes.orphans import describe_orphans, stop_orphans

    with SystemDisk().hold(data_dir, "worker"):  # a running worker would restart them
        local = LocalSettings(state=data_dir / "run", environment={}, isolation=Isolation(setting="off"))
        processes = LocalProcesses(local, groups=find_groups(), clock=SystemClock(), ids=SystemIds())
        ended = await stop_orphans(processes)
    return f"Stopped {describe_orphans(ended)}." if ended else f"No backend of {data_dir} was running."


def _check_own_directory(data_dir: Path) -> None:
    from corral.system import SystemDisk

    with suppress(PermissionError):  # another user's directory is reported when it is opened
        if SystemDisk().read(data_dir / "keys" / "local.token") is None:
            return
        raise InvalidSetting(
            f"data_dir: {data_dir} belongs to `{command('up')}`, which runs its own worker there. A second worker on"
            " this machine needs another directory: pass --data-dir"
        )


def _real_ports() -> "WorkerPorts":
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
        call_engine=http_call,
        open_area=Area,
        open_fetch=lambda settings: Artifacts(settings, clock=clock, ids=ids),
        open_processes=lambda settings, nvml: LocalProcesses(
            settings, groups=find_groups(), clock=clock, ids=ids, nvml=nvml
        ),
        find_isolation=find_isolation,
        hardware=lambda models: Roots(disk=models),
        environment=dict(os.environ),
    )
