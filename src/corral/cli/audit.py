"""`corral audit`: who did what."""

import json

import click

from corral.cli.client import Api, client_command, print_json, print_table, show_time


@click.command("audit")
@client_command
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many entries.")
@click.option("--since", default=None, metavar="AGE|TIME", help="Not older than this: 2h, 7d or 2030-01-31T12:00:00Z.")
def audit_command(api: Api, limit: int, since: str | None) -> None:
    """Who changed what, and who was refused; newest first."""
    wanted = {"limit": str(limit)} | ({"since": since} if since else {})
    entries = api.call("GET", "api", "audit", query=wanted)
    if api.as_json:
        print_json(entries)
        return
    if not entries:
        click.echo("There are no entries." if since is None else f"There are no entries since {since}.")
        return
    print_table(
        ("TIME (UTC)", "WHO", "ACTION", "ON", "DETAIL"),
        [
            (
                show_time(entry["at"]),
                entry["actor"],
                entry["action"],
                entry["subject"],
                json.dumps(entry["detail"], ensure_ascii=False) if entry["detail"] else "",
            )
            for entry in entries
        ],
    )
