"""`corral audit`: the audit log."""

import json
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json, print_table, show_time


@click.command("audit")
@client_command
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of entries.")
@click.option(
    "--since", default=None, metavar="AGE|TIME", help="Only entries since then: 2h, 7d or 2030-01-31T12:00:00Z."
)
def audit_command(api: Api, limit: int, since: str | None) -> None:
    """Show the audit log: changes and denied requests.

    Newest entries first."""
    query = {"limit": str(limit)} | ({"since": since} if since else {})
    entries = api.call("GET", "api", "audit", query=query)
    if api.as_json:
        print_json(entries)
        return
    if not entries:
        click.echo("The audit log is empty." if since is None else f"No entries since {since}.")
        return
    print_table(
        ("TIME (UTC)", "ACTOR", "ACTION", "SUBJECT", "DETAIL"),
        [
            (
                show_time(entry["at"]),
                entry["actor"],
                entry["action"],
                _name(entry["subject"], entry),
                json.dumps(named_detail(entry), ensure_ascii=False) if entry["detail"] else "",
            )
            for entry in entries
        ],
    )


def named_detail(entry: dict[str, Any]) -> Any:
    """The detail of an entry, with node names beside their ids."""
    detail = dict(entry["detail"])
    nodes = detail.get("nodes")
    count = detail.pop("node_count", None)
    if isinstance(nodes, list) and isinstance(count, int) and count > len(nodes):
        detail["nodes"] = [*nodes, f"and {count - len(nodes)} more"]
    return _named(detail, entry)


def _name(text: str, entry: dict[str, Any]) -> str:
    """A node's name with the start of its id, because several nodes may have had the name."""
    name = entry.get("names", {}).get(text)
    return f"{name} ({text[:8]})" if name else text


def _named(value: Any, entry: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return _name(value, entry)
    if isinstance(value, dict):
        return {key: _named(each, entry) for key, each in value.items()}
    return [_named(each, entry) for each in value] if isinstance(value, list) else value
