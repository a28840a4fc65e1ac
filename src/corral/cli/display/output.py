"""How commands print: JSON, tables, times, text of others, and warnings about galleries."""

import json
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import click

from corral.cli.program_name import as_called
from corral.core.durations import format_age

NARROWEST = 5


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def clean(text: str) -> str:
    """Text of a server as one line: without control characters, and with commands as the user types them."""
    line = re.sub(r"\s*\n\s*", " ", text)
    return as_called("".join(char if char.isprintable() else "?" for char in line))


def fit_widths(widths: Sequence[int], total: int, *, may_cut: Collection[int]) -> list[int]:
    """Column widths that fit into `total`. Columns in `may_cut` are narrowed, the widest first."""
    fitted = list(widths)
    while sum(fitted) + 2 * (len(fitted) - 1) > total:
        widest = max(may_cut, key=lambda at: fitted[at])
        if fitted[widest] <= NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


def show_time(rfc3339: str) -> str:
    """A time in UTC, to the second, as all listings show it. `--json` prints it in full."""
    return rfc3339[:19].replace("T", " ")


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Prints one line per field, with the label in front."""
    shown = [(label, clean(value)) for label, value in fields]
    width = max((len(label) for label, _ in shown), default=0)
    for label, value in shown:
        click.echo(f"{label:{width}}  {value}".rstrip())


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, may_cut: Collection[str] = (), err: bool = False
) -> None:
    """Prints aligned columns. On a terminal, columns are cut to its width (those in `may_cut`, or all); in a pipe, none
    is."""
    lines = [list(columns), *[[clean(str(cell)) for cell in row] for row in rows]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    if (sys.stderr if err else sys.stdout).isatty():
        cut = [at for at, column in enumerate(columns) if not may_cut or column in may_cut]
        widths = fit_widths(widths, shutil.get_terminal_size().columns, may_cut=cut)
    for line in lines:
        cells = [
            (cell if len(cell) <= width else cell[: width - 1] + "…").ljust(width)
            for cell, width in zip(line, widths, strict=True)
        ]
        click.echo("  ".join(cells).rstrip(), err=err)


def warn_of_galleries(galleries: list[dict[str, Any]]) -> bool:
    """Reports galleries that could not be read, so that the list may be incomplete. Returns whether there are any."""
    unread = [gallery for gallery in galleries if gallery["problem"]]
    for gallery in unread:
        copy = f"showing a copy from {format_age(gallery['age_s'])} ago"
        fallback = copy if gallery["entries"] else "its contents are unknown"
        click.echo(f"corral: gallery {gallery['name']}: {clean(gallery['problem'])} ({fallback})", err=True)
    return bool(unread)
