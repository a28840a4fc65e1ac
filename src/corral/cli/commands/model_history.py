"""`corral models history` and `corral models rollback`."""

from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import clean, print_json, print_table, show_time
from corral.cli.display.revisions import if_match, name_revision, report_edit
from corral.core.causes import join_reasons

VALUE_MOST_CHARS = 200


@click.command("history")
@client_command
@click.argument("model")
@click.argument("revision", required=False, default="")
@click.option("--against", default="", help="Compare REVISION with this one instead of the one before it.")
@click.option("--config", "show_config", is_flag=True, help="Print the configuration of REVISION.")
def show_history(api: Api, model: str, revision: str, against: str, show_config: bool) -> None:
    """List the revisions of a model, or what one changed.

    With REVISION (a number, or the first characters of the hash) only the fields that it changed are shown. The newest
    100 revisions are kept."""
    history = api.call("GET", "api", "models", model, "revisions")
    if not revision:
        if api.as_json:
            print_json(history)
        else:
            _print_table(history)
        return
    query = [("against", against)] if against else []
    changes = api.call("GET", "api", "models", model, "revisions", revision, "changes", query=query)
    shown = next(item for item in history if item["number"] == changes["number"])
    if api.as_json:
        print_json({**shown, **changes})
        return
    if show_config:
        click.echo("".join(char if char.isprintable() or char in "\n\t" else "?" for char in shown["config"]).rstrip())
        return
    _print_changes(shown, changes)


def _print_table(history: list[dict[str, Any]]) -> None:
    print_table(
        ("REVISION", "HASH", "STATE", "CHANGED (UTC)", "CHANGED BY", "SERVED SINCE", "NOTE"),
        [
            (
                str(item["number"]),
                item["revision"][:12],
                item["state"],
                show_time(item["at"]),
                item["actor"],
                show_time(item["served_at"]) if item["served_at"] else "never",
                join_reasons((item["comment"], item["reason"])),
            )
            for item in history
        ],
    )


def _print_changes(shown: dict[str, Any], changes: dict[str, Any]) -> None:
    click.echo(
        f"{name_revision(shown['number'], shown['revision'])}: {shown['state']};"
        f" {show_time(shown['at'])} UTC, by {clean(shown['actor'])}"
    )
    for note in filter(None, (shown["comment"], shown["reason"])):
        click.echo(f"  {clean(note)}")
    if changes["against"] is None:
        click.echo("No earlier revision to compare it with. Its fields:")
    elif changes["changes"]:
        click.echo(f"Changes since revision {changes['against']}:")
    else:
        click.echo(f"No field differs from revision {changes['against']}.")
    for change in changes["changes"]:
        for sign, value in (("-", change["before"]), ("+", change["after"])):
            if value is not None:
                text = clean(value)
                cut = f"{text[:VALUE_MOST_CHARS]}…" if len(text) > VALUE_MOST_CHARS else text
                click.echo(f"  {sign} {clean(change['field'])}: {cut}")


@click.command("rollback")
@client_command
@click.argument("model")
@click.option("--to", default="", metavar="REVISION", help="Number or first characters of the hash; see `history`.")
@click.option("--comment", default="", help="Why, for the history.")
def roll_back_model(api: Api, model: str, to: str, comment: str) -> None:
    """Go back to an earlier configuration.

    Without --to: discard a revision that is pending or failed; otherwise the last one that served before. Replicas
    keep serving until a replica with it answers."""
    found = api.call("GET", "api", "models", model)
    body = {"to": to, "comment": comment}
    after = api.call("POST", "api", "models", found["name"], "rollback", body=body, headers=if_match(found))
    if found["pending"] is not None and after["number"] == found["pending"]["serving_number"] and not api.as_json:
        dropped, serving = found["number"], after["number"]
        click.echo(f"{clean(after['name'])}: revision {dropped} is discarded; revision {serving} keeps serving")
    else:
        report_edit(api, found, after)
