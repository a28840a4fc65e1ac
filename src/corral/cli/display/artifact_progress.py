"""Shows the progress of one download: a bar on a terminal, occasional lines otherwise."""

import sys
from typing import Any

import click

from corral.core.sizes import format_bytes
from corral.core.transfer import TransferProgress

STEP_PERCENT = 10


class ProgressView:
    """Writes to standard error, so that results can be piped. Imports `rich` only when it draws a bar."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        self._title = title
        self._quiet = quiet
        self._last = ("", 0)
        self._drawn: Any = None
        if not quiet and sys.stderr.isatty():
            self._draw()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._drawn = RichProgress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
        self._task = self._drawn.add_task(self._title, total=None)
        self._drawn.start()

    def update(self, progress: TransferProgress) -> None:
        if self._drawn is not None:
            self._drawn.update(
                self._task,
                description=f"{self._title}: {progress.phase}",
                completed=progress.bytes_done or 0,
                total=progress.bytes_total,
            )
        elif not self._quiet:
            self._print_line(progress)

    def _print_line(self, progress: TransferProgress) -> None:
        """Prints a line for each phase and each 10 % of a download."""
        here = (progress.phase, int(progress.percentage // STEP_PERCENT))
        if here == self._last:
            return
        self._last = here
        amount = ""
        if progress.phase == "downloading":
            total = "" if progress.bytes_total is None else f" of {format_bytes(progress.bytes_total)}"
            amount = f" {format_bytes(progress.bytes_done or 0)}{total}"
        click.echo(f"{self._title}: {progress.phase}{amount}", err=True)

    def close(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()
