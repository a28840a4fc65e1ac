"""`corral usage`: requests and tokens."""

from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json, print_table

COUNTS = ("requests", "tokens_in", "tokens_out")
COLUMNS = ("day", "key", "model", "node")


@click.command("usage")
@client_command
@click.option(
    "--days", type=click.IntRange(1, 400), default=30, show_default=True, help="Number of days, including today."
)
@click.option(
    "--by", multiple=True, type=click.Choice(COLUMNS), help="Group by this; repeatable. Default: key, model and node."
)
def usage_command(api: Api, days: int, by: tuple[str, ...]) -> None:
    """Show requests and tokens by key, model and node."""
    chosen = [name for name in COLUMNS if name in (by or ("key", "model", "node"))]
    rows = api.call("GET", "api", "usage", query=[("days", str(days)), *(("by", name) for name in chosen)])
    if api.as_json:
        print_json(rows)
        return
    if not rows:
        click.echo(f"No requests in the last {days} days. A request is counted a few seconds after its answer.")
        return
    print_table(
        [*(name.upper() for name in chosen), "REQUESTS", "TOKENS IN", "TOKENS OUT"],
        [
            [
                *(_cell(row, name) for name in chosen),
                *(f"{row[name]:,}" for name in ("requests", "tokens_in", "tokens_out")),
            ]
            for row in rows
        ],
    )


def _cell(row: dict[str, Any], name: str) -> str:
    if name in ("day", "model"):
        return str(row[name])
    return row[f"{name}_name"] or row[f"{name}_id"] or "none"
