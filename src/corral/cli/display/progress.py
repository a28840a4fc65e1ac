"""Shows the progress of an operation on each node: bars on a terminal, lines in a pipe, nothing with --json."""

import sys
from collections import Counter
from typing import Any, Protocol

import click

from corral.cli.client.operation import DRAINED, Held, NodePart, OperationPart
from corral.cli.display.output import clean
from corral.cli.program_name import command
from corral.core.backends.operations import describe_running

STEP = 10
"""In a pipe, a download prints a line each time it advances by this many percent."""
WORDS = {
    "queued": "queued",
    "downloading": "in progress",
    "running_on_worker": "unconfirmed (still running on the worker)",
    "success": "done",
    "error": "FAILED",
    "not_applicable": "not applicable",
    "cancelled": "cancelled",
}
_COLOURS = {
    "queued": "dim",
    "downloading": "cyan",
    "running_on_worker": "yellow",
    "success": "green",
    "error": "red",
    "not_applicable": "dim",
    "cancelled": "dim",
}
_ORDER = ("error", "running_on_worker", "downloading", "queued", "not_applicable", "cancelled", "success")
_RANKS = {status: rank for rank, status in enumerate(_ORDER)}


class Display(Protocol):
    def show(self, operation: OperationPart, held: Held) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


def open_display(*, as_json: bool) -> Display:
    if as_json:
        return Silence()
    return Bars() if sys.stdout.isatty() else Lines()


def count_words(operation: OperationPart) -> str:
    """How many nodes have which status: `2 done, 1 being deleted`."""
    counts = Counter(node.status for node in operation.nodes)
    return ", ".join(f"{count} {status_word(status, operation.verb)}" for status, count in counts.items())


def status_word(status: str, verb: str) -> str:
    if status == "downloading":
        return describe_running(verb)
    return WORDS.get(status, status).lower()


def describe_status(node: NodePart, held: str | None) -> str:
    if node.status == "queued" and held == DRAINED:
        return f"drained; continues after `{command(f'nodes resume {clean(node.node_name)}')}`{_reason(node)}"
    if node.status == "queued" and held is not None:
        return f"{held}; continues when the node is back online{_reason(node)}"
    if node.status == "downloading" and node.phase:
        return node.phase
    return WORDS.get(node.status, node.status) + _reason(node)


def _reason(node: NodePart) -> str:
    return f": {clean(node.error)}" if node.error else ""


class Silence:
    def show(self, operation: OperationPart, held: Held) -> None:
        pass

    def note(self, text: str) -> None:
        click.echo(text, err=True)

    def close(self) -> None:
        pass


class Lines:
    """Prints one line for each change of a node."""

    def __init__(self) -> None:
        self._printed: dict[str, tuple[str, int]] = {}

    def show(self, operation: OperationPart, held: Held) -> None:
        for node in operation.nodes:
            text = describe_status(node, held.get(node.node_id))
            step = int(node.percentage) // STEP if node.status == "downloading" else 0
            if self._printed.get(node.node_id) == (text, step):
                continue
            self._printed[node.node_id] = (text, step)
            percent = f" {node.percentage:.0f} %" if node.status == "downloading" and node.percentage else ""
            amount = f" ({node.amount})" if node.status == "downloading" and node.amount else ""
            click.echo(f"{clean(node.node_name)}: {text}{percent}{amount}")

    def note(self, text: str) -> None:
        click.echo(text, err=True)

    def close(self) -> None:
        pass


class Bars:
    """Draws a bar for each node. When the terminal has too few lines, nodes with problems are preferred. Imports
    `rich`."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live = Live(console=self._console, refresh_per_second=8, transient=False)
        self._live.start()

    def show(self, operation: OperationPart, held: Held) -> None:
        self._live.update(self._table(operation, held))

    def _table(self, operation: OperationPart, held: Held) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        lines = max(3, self._console.height - 4)
        nodes = sorted(operation.nodes, key=lambda node: (_RANKS.get(node.status, 0), node.node_name))
        table = Table.grid(padding=(0, 2))
        for node in sorted(nodes[:lines], key=lambda node: node.node_name):
            text = describe_status(node, held.get(node.node_id))
            done = 100.0 if node.status == "success" else node.percentage
            eta = f", {node.eta_s:.0f} s left" if node.eta_s and node.status == "downloading" else ""
            amount = f"{node.amount}{eta}" if node.status in ("downloading", "running_on_worker") else ""
            table.add_row(
                Text(clean(node.node_name)),
                ProgressBar(total=100, completed=done, width=24),
                Text(f"{done:3.0f} %"),
                Text(text, style=_COLOURS.get(node.status, "")),
                Text(amount, style="dim"),
            )
        if len(nodes) > lines:
            left = nodes[lines:]
            done_count = sum(node.status == "success" for node in left)
            table.add_row(
                Text(f"and {len(left)} more", style="dim"), "", "", Text(f"{done_count} done", style="dim"), ""
            )
        return table

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()
