"""What can be installed, what is installed where, and what is newer."""

from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import clean, print_json, print_table, warn_of_galleries
from corral.cli.program_name import command
from corral.core.sizes import format_bytes


@click.command("available")
@client_command
@click.argument("name", required=False)
@click.option("--term", default="", help="Only what has these words in its name, description or tags.")
@click.option("--tag", default="", help="Only what has this tag.")
@click.option("--everything", is_flag=True, help="Also parts of families, and development builds.")
def list_available(api: Api, name: str | None, term: str, tag: str, everything: bool) -> None:
    """What galleries offer; with NAME, what each machine would get.

    SIZE is about the room it takes, as the gallery says it. The download is smaller where it comes packed, or where
    a machine has parts of it already; `corral artifacts list` tells what it came to on a disk."""
    query = {"term": term, "tag": tag, "name": name or "", "everything": str(everything).lower()}
    answer = api.call("GET", "api", "backends", "available", query=query)
    unread = warn_of_galleries(answer["galleries"])
    if api.as_json:
        print_json(answer)
        return
    if name is not None:
        _show_offer(answer["backends"][0], answer["nodes"])
        return
    if not answer["backends"]:
        click.echo("No gallery that could be read has such a backend." if unread else "No gallery has such a backend.")
        return
    print_table(
        ("BACKEND", "GALLERY", "FITS", "INSTALLED ON", "SIZE", "DESCRIPTION"),
        [
            (
                offer["name"],
                offer["gallery"],
                _fits(offer, answer["nodes"]),
                offer["installed_on"] or "-",
                _size(offer["size_bytes"]),
                _first_sentence(offer["description"]),
            )
            for offer in answer["backends"]
        ],
    )


def _fits(offer: dict[str, Any], nodes: list[dict[str, Any]]) -> str:
    fitting = sum(variant["nodes"] for variant in offer["variants"] if variant["variant"] is not None)
    return f"{fitting} of {len(nodes)}" if nodes else "-"


def _size(size_bytes: int | None) -> str:
    return format_bytes(size_bytes) if size_bytes is not None else "unknown"


def _first_sentence(text: str) -> str:
    first = " ".join(text.split()).partition(". ")[0]
    return first if len(first) <= 80 else f"{first[:79]}…"


def _show_offer(offer: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    for name, value in (
        ("backend", offer["id"]),
        ("about", " ".join(offer["description"].split())),
        ("version", offer["version"] or "as its variants say"),
        ("license", offer["license"] or "unknown"),
        ("tags", ", ".join(offer["tags"])),
        ("more", " ".join(offer["urls"])),
    ):
        if value:
            click.echo(f"{name:8} {clean(value)}")
    click.echo("")
    if not nodes:
        click.echo("There are no machines yet that could get it.")
        return
    by_capability = {variant["capability"]: variant for variant in offer["variants"]}
    rows = []
    for node in nodes:
        variant = by_capability[node["capability"]]
        rows.append((node["node_name"], variant["variant"] or "none", _size(variant["size_bytes"]), variant["reason"]))
    print_table(("NODE", "GETS", "SIZE", "BECAUSE"), rows)


@click.command("list")
@client_command
@click.argument("name", required=False)
def list_backends(api: Api, name: str | None) -> None:
    """Which machine has which version of what."""
    fleet = api.call("GET", "api", "fleet", "backends")
    if name is not None:
        fleet = [backend for backend in fleet if backend["name"].lower() == name.lower()]
    if api.as_json:
        print_json(fleet)
        return
    if not fleet:
        what = f"No machine has {name}." if name else "No machine has a backend yet."
        available, install = command("backends available"), command("backends install NAME")
        click.echo(f"{what} `{available}` shows what there is; `{install}` installs it.")
        return
    print_table(
        ("BACKEND", "NODE", "VERSION", "DIGEST", "NOTE"),
        [
            (backend["name"], node["node_name"], node["version"] or "-", _short(node["digest"]), _drift(node))
            for backend in fleet
            for node in backend["nodes"]
        ],
    )


def _short(digest: str | None) -> str:
    return (digest or "-").removeprefix("sha256:")[:12]


def _drift(node: dict[str, Any]) -> str:
    drifts = [f"{drift['cause'].replace('_', ' ')}: {drift['detail']}" for drift in node["drift"]]
    away = [f"the node is {node['node_status']}"] if node["node_status"] not in ("healthy", "draining") else []
    pending = [f"{node['pending']} pending"] if node["pending"] else []
    newer = ["there is something newer"] if not node["current"] and not drifts and node["digest"] else []
    held = ["rolled back"] if node.get("rolled_back") else []
    return "; ".join(pending + drifts + newer + held + away)


@click.command("upgrades")
@client_command
@click.option("--check", is_flag=True, help="Have galleries and registries asked anew first.")
def list_upgrades(api: Api, check: bool) -> None:
    """List backends with an upgrade, and those that cannot be checked."""
    if check:
        api.call("POST", "api", "backends", "upgrades", "check", query={"wait": "true"})
    upgrades = api.call("GET", "api", "backends", "upgrades")
    unread = warn_of_galleries(api.call("GET", "backends", "galleries"))
    if api.as_json:
        print_json(upgrades)
        return
    if not upgrades:
        say_nothing_newer(api, unread=bool(unread))
        return
    for note in _outlook(api):
        click.echo(note, err=True)
    print_table(
        ("BACKEND", "INSTALLED", "AVAILABLE", "DIFFERING"),
        [
            (
                name,
                upgrade["installed_version"] or _short(upgrade.get("installed_digest")),
                upgrade["available_version"] or _short(upgrade.get("available_digest")),
                ", ".join(node["node_name"] for node in upgrade.get("node_drift") or []) or "-",
            )
            for name, upgrade in sorted(upgrades.items())
        ],
    )


def say_nothing_newer(api: Api, *, unread: bool = False, held: bool = False) -> None:
    """`held`: what is newer was rolled back everywhere."""
    notes = _outlook(api)
    if held:
        click.echo("Nothing is newer but what was rolled back.")
    elif unread:
        click.echo("Nothing newer is known, but not every gallery could be read.")
    else:
        click.echo("Nothing newer is known." if notes else "Everything is up to date.")
    for note in notes:
        click.echo(note)


def _outlook(api: Api) -> list[str]:
    """Where nothing newer is told and there may be something all the same."""
    notes = []
    upgrades = api.call("GET", "api", "backends", "upgrades").values()
    free = {
        (upgrade["backend_name"], node["node_id"])
        for upgrade in upgrades
        for node in upgrade.get("node_drift") or []
        if not node.get("rolled_back")
    }
    for backend in api.call("GET", "api", "fleet", "backends"):
        name = clean(backend["name"])
        held = [
            clean(node["node_name"])
            for node in backend["nodes"]
            if node.get("rolled_back") and (backend["name"], node["node_id"]) not in free
        ]
        unchecked: dict[str, list[str]] = {}
        for node in backend["nodes"]:
            if node.get("unchecked"):
                unchecked.setdefault(clean(node["unchecked"]), []).append(clean(node["node_name"]))
        upgrade = command(f"backends upgrade {name}")
        if held:
            notes.append(f"{name}: rolled back on {', '.join(held)} and held there; `{upgrade}` takes the newest again")
        notes += [
            f"{name}: cannot be checked on {', '.join(nodes)}: {reason}; `{upgrade}` fetches what is there now"
            for reason, nodes in sorted(unchecked.items())
        ]
    return notes
