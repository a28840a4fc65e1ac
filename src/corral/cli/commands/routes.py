"""`corral routes`: names for clients that lead to several models."""

import sys
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import clean, print_json, print_table, show_time
from corral.cli.program_name import command
from corral.core.errors import InvalidInput


@click.group("routes")
def routes_group() -> None:
    """Lead one name to several models, with fallbacks."""


@routes_group.command("list")
@client_command
def list_routes(api: Api) -> None:
    """List routes, with the models that they lead to."""
    found = api.call("GET", "api", "routes")
    if api.as_json:
        print_json(found)
        return
    if not found:
        click.echo(f"No routes. Add one: {command('routes set NAME --to LOCAL-MODEL --fallback HOSTED-MODEL')}")
        return
    print_table(
        ("NAME", "LEADS TO", "FALLBACKS", "STICKY", "CHANGED (UTC)", "BY"),
        [
            (
                route["name"],
                _tier_words(route["tiers"][0]),
                ", then ".join(map(_tier_words, route["tiers"][1:])) or "-",
                "yes" if route["sticky"] else "-",
                show_time(route["changed_at"]),
                route["changed_by"],
            )
            for route in found
        ],
    )


def _tier_words(tier: list[dict[str, Any]]) -> str:
    """`qwen (2 ready), other*3 (0 ready)`."""
    return ", ".join(
        f"{one['model']}{'*' + str(one['weight']) if one['weight'] > 1 else ''} ({one['ready']} ready)" for one in tier
    )


@routes_group.command("set")
@client_command
@click.argument("name")
@click.option("--to", "to", multiple=True, required=True, metavar="MODEL[=WEIGHT]", help="First choice; may repeat.")
@click.option(
    "--fallback",
    "fallbacks",
    multiple=True,
    metavar="MODEL[=WEIGHT][,...]",
    help="For when all before are busy or away; may repeat, in order.",
)
@click.option("--sticky", is_flag=True, help="Keep a session (X-Corral-Session) at its model.")
def set_route(api: Api, name: str, to: tuple[str, ...], fallbacks: tuple[str, ...], sticky: bool) -> None:
    """Add or replace a route: one name that leads to several models.

    Requests for NAME go to the models of --to, by weight. While none of them can serve (every replica is busy, away or
    has failed the request), those of the first --fallback get it, and so on. A route may have the name of a model that
    it leads to: clients of that model then get the fallbacks."""
    tiers = [[target for given in to for target in _targets(given)], *map(_targets, fallbacks)]
    answer = api.call("PUT", "api", "routes", name, body={"tiers": tiers, "sticky": sticky})
    if api.as_json:
        print_json(answer)
        return
    steps = [", ".join(one["model"] for one in tier) for tier in answer["tiers"]]
    click.echo(f"{clean(answer['name'])}: leads to {clean('; then '.join(steps))}")


def _targets(text: str) -> list[dict[str, Any]]:
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        model, separator, weight = item.rpartition("=")
        if separator and not (weight.isdigit() and len(weight) <= 4):
            raise InvalidInput(f"{item!r} is not a model with a weight; use for example qwen=3")
        found.append({"model": model if separator else item, "weight": int(weight) if separator else 1})
    if not found:
        raise InvalidInput("name at least one model for --to and for each --fallback")
    return found


@routes_group.command("delete")
@client_command
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def delete_route(api: Api, name: str, yes: bool) -> None:
    """Delete a route. Its models stay."""
    if not yes and not sys.stdin.isatty():
        raise InvalidInput("not a terminal: pass --yes to confirm")
    if not yes:
        click.confirm(f"Delete the route {name}? Requests for it are then rejected.", abort=True)
    api.call("DELETE", "api", "routes", name)
    if api.as_json:
        print_json({"name": name})
    else:
        click.echo(f"{clean(name)}: deleted")
