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

NARROWEST = 6


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def clean(text: str) -> str:
    """What others say, fit for one line of this terminal: nothing of it steers it, and commands in it can be typed
    here."""
    line = re.sub(r"\s*\n\s*", " ", text)
    return as_called("".join(char if char.isprintable() else "?" for char in line))


def fit_widths(widths: Sequence[int], room: int, *, may_cut: Collection[int]) -> list[int]:
    """Column widths that fit into `room`: of those that may be cut, the widest gives way first."""
    fitted = list(widths)
    while sum(fitted) + 2 * (len(fitted) - 1) > room:
        widest = max(may_cut, key=lambda at: fitted[at])
        if fitted[widest] <= NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


def show_time(rfc3339: str) -> str:
    """UTC, to the second, as every listing shows it; `--json` tells it in full."""
    return rfc3339[:19].replace("T", " ")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, may_cut: Collection[str] = (), err: bool = False
) -> None:
    """Aligned columns. On a terminal some are cut to its width (all, unless they are named); in a pipe none is."""
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
    """Whether there was anything to warn of."""
    troubled = [gallery for gallery in galleries if gallery["problem"]]
    for gallery in troubled:
        copy = f"shown from a copy {format_age(gallery['age_s'])} old"
        kept = copy if gallery["entries"] else "nothing is known of it"
        click.echo(f"corral: gallery {gallery['name']}: {clean(gallery['problem'])} ({kept})", err=True)
    return bool(troubled)
