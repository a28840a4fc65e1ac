"""`corral worker`: run the worker of this machine."""

import sys
from typing import Any

import click

from corral.cli.options import read_settings, settings_options
from corral.settings import WorkerSettings


@click.command("worker")
@settings_options(WorkerSettings)
def worker_command(**flags: Any) -> None:
    """Join this machine to a fleet and run backends on it.

    The first time: corral worker --join http://frontend:8080 --token TOKEN. Later runs need no flags."""
    settings = read_settings(WorkerSettings, flags)
    # structlog loads it for tracebacks we do not want: 5 MB for nothing, and a worker may run for years.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from corral.system import SystemClock, SystemIds
    from corral.system.memory import share_malloc_arenas
    from corral.system.run import run_until_signal
    from corral.telemetry.logs import configure_logs
    from corral.worker.main import run_worker

    share_malloc_arenas()
    configure_logs(level=settings.log_level, format=settings.log_format, role="worker")
    run_until_signal(lambda: run_worker(settings, clock=SystemClock(), ids=SystemIds()))
