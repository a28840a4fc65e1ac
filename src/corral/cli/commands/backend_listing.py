"""Lists of backends: available ones, installed ones, and upgrades."""

from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import clean, print_fields, print_json, print_table, warn_of_galleries
from corral.cli.display.slow_builds import read_slow_builds, slow_line
from corral.cli.program_name import command
from corral.core.causes import join_reasons
from corral.core.sizes import format_bytes


@click.command("available")
@client_command
@click.argument("name", required=False)
@click.option("--term", default="", help="Only backends with these words in name, description or tags.")
@click.option("--tag", default="", help="Only backends with this tag.")
@click.option("--everything", is_flag=True, help="Also list the builds of each family, and development builds.")
def list_available(api: Api, name: str | None, term: str, tag: str, everything: bool) -> None:
    """List backends to install; with NAME, the build per node.

    SIZE is the approximate disk space according to the gallery. A download is smaller when it is compressed or when the
    node already has parts of it. `corral artifacts list` shows the size on disk."""
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
        click.echo(
            "No matching backend in the galleries that could be read."
            if unread
            else "No gallery has a matching backend."
        )
        return
    print_table(
        ("BACKEND", "GALLERY", "SUPPORTED ON", "INSTALLED ON", "SIZE", "DESCRIPTION"),
        [
            (
                offer["name"],
                offer["gallery"],
                _supported_on(offer, answer["nodes"]),
                offer["installed_on"] or "-",
                _size(offer["size_bytes"]),
                _first_sentence(offer["description"]),
            )
            for offer in answer["backends"]
        ],
    )


def _supported_on(offer: dict[str, Any], nodes: list[dict[str, Any]]) -> str:
    count = sum(variant["nodes"] for variant in offer["variants"] if variant["variant"] is not None)
    return f"{count} of {len(nodes)}" if nodes else "-"


def _size(size_bytes: int | None) -> str:
    return format_bytes(size_bytes) if size_bytes is not None else "unknown"


def _first_sentence(text: str) -> str:
    first = " ".join(text.split()).partition(". ")[0]
    return first if len(first) <= 80 else f"{first[:79]}…"


def _show_offer(offer: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    fields = (
        ("BACKEND", offer["id"]),
        ("DESCRIPTION", " ".join(offer["description"].split())),
        ("VERSION", offer["version"] or "differs between builds"),
        ("LICENSE", offer["license"] or "unknown"),
        ("TAGS", ", ".join(offer["tags"])),
        ("LINKS", " ".join(offer["urls"])),
    )
    print_fields((label, value) for label, value in fields if value)
    click.echo("")
    if not nodes:
        click.echo("No node has joined yet.")
        return
    by_capability = {variant["capability"]: variant for variant in offer["variants"]}
    rows = []
    for node in nodes:
        variant = by_capability[node["capability"]]
        rows.append((node["node_name"], variant["variant"] or "none", _size(variant["size_bytes"]), variant["reason"]))
    print_table(("NODE", "BUILD", "SIZE", "REASON"), rows)


@click.command("list")
@client_command
@click.argument("name", required=False)
def list_backends(api: Api, name: str | None) -> None:
    """List installed backends: which node has which version."""
    fleet = api.call("GET", "api", "fleet", "backends")
    if name is not None:
        fleet = [backend for backend in fleet if _is_named(backend, name)]
    if api.as_json:
        print_json(fleet)
        return
    if not fleet:
        what = f"No node has {name}." if name else "No node has a backend yet."
        available, install = command("backends available"), command("backends install NAME")
        click.echo(f"{what} `{available}` lists backends to install; `{install}` installs one.")
        return
    slow = {(name, one["node_id"]): one for one in read_slow_builds(api) for name in (one["backend"], one["build"])}

    def note(backend: str, node: dict[str, Any]) -> str:
        found = slow.get((backend, node["node_id"]))
        return join_reasons((_drift(node), slow_line(found) if found is not None else ""))

    print_table(
        ("BACKEND", "NODE", "VERSION", "DIGEST", "NOTE"),
        [
            (
                backend["name"],
                node["node_name"],
                node["version"] or "-",
                _short(node["digest"]),
                note(backend["name"], node),
            )
            for backend in fleet
            for node in backend["nodes"]
        ],
    )


def _is_named(backend: dict[str, Any], name: str) -> bool:
    """By the name of the backend or of one of its builds; a gallery or a version with it is ignored."""
    given = {part.lower() for part in name.split("@")}
    return bool(given & {backend["name"].lower(), *(node["variant"].lower() for node in backend["nodes"])} - {""})


def _short(digest: str | None) -> str:
    return (digest or "-").removeprefix("sha256:")[:12]


def _drift(node: dict[str, Any]) -> str:
    drifts = [f"{drift['cause'].replace('_', ' ')}: {drift['detail']}" for drift in node["drift"]]
    away = [f"the node is {node['node_status']}"] if node["node_status"] not in ("healthy", "draining") else []
    pending = [f"{node['pending']} pending"] if node["pending"] else []
    held = ["a newer version is held back"] if node.get("held_back") else []
    newer = held or (["upgrade available"] if not node["current"] and not drifts and node["digest"] else [])
    pinned = [node["pinned"]] if node.get("pinned") else []
    return join_reasons(pending + drifts + pinned + newer + away)


@click.command("upgrades")
@client_command
@click.option("--check", is_flag=True, help="Refresh galleries and registries first.")
def list_upgrades(api: Api, check: bool) -> None:
    """List available upgrades, and backends that cannot be checked."""
    if check:
        api.call("POST", "api", "backends", "upgrades", "check", query={"wait": "true"})
    upgrades = api.call("GET", "api", "backends", "upgrades")
    unread = warn_of_galleries(api.call("GET", "backends", "galleries"))
    if api.as_json:
        print_json(upgrades)
        return
    if not upgrades:
        report_up_to_date(api, unread=bool(unread))
        return
    found = {name: upgrade.get("node_drift") or [] for name, upgrade in upgrades.items()}
    for note in describe_skipped(found) + _outlook(api):
        click.echo(note, err=True)
    print_table(
        ("BACKEND", "INSTALLED", "AVAILABLE", "OUTDATED ON"),
        [
            (
                name,
                upgrade["installed_version"] or _short(upgrade.get("installed_digest")),
                upgrade["available_version"] or _short(upgrade.get("available_digest")),
                ", ".join(map(_outdated, upgrade.get("node_drift") or [])) or "-",
            )
            for name, upgrade in sorted(upgrades.items())
        ],
    )


def _outdated(node: dict[str, Any]) -> str:
    for field, mark in (("pinned", "pinned"), ("held_back", "held back"), ("rolling_out", "in a rollout")):
        if node.get(field):
            return f"{node['node_name']} ({mark})"
    return str(node["node_name"])


def describe_skipped(upgrades: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Backends that are not upgraded where their version is pinned or held back; by backend, the nodes with an older
    version."""
    notes = []
    for name, nodes in sorted(upgrades.items()):
        by_text: dict[str, list[str]] = {}
        for node in nodes:
            if node.get("pinned"):
                available = node["available_version"] or _short(node["available_digest"])
                text = f"{clean(node['pinned'])}; {clean(available)} available"
                by_text.setdefault(text, []).append(clean(node["node_name"]))
            elif held := node.get("held_back") or node.get("rolling_out"):
                by_text.setdefault(clean(held), []).append(clean(node["node_name"]))
        notes += [f"{clean(name)} on {', '.join(there)}: {text}" for text, there in sorted(by_text.items())]
    return notes


def report_up_to_date(api: Api, *, unread: bool = False, skipped: str = "") -> None:
    """Reports that there is no upgrade. `skipped`: there are newer versions, but only for such backends."""
    notes = _outlook(api)
    if skipped:
        click.echo(f"No upgrades, except for {skipped} backends.")
    elif unread:
        click.echo("No upgrades found, but not every gallery could be read.")
    else:
        click.echo("No upgrades found." if notes else "All backends are up to date.")
    for note in notes:
        click.echo(note)


def _outlook(api: Api) -> list[str]:
    """Backends for which no upgrade is listed although there may be one."""
    notes = []
    for backend in api.call("GET", "api", "fleet", "backends"):
        name = clean(backend["name"])
        unchecked: dict[str, list[str]] = {}
        for node in backend["nodes"]:
            if node.get("unchecked"):
                unchecked.setdefault(clean(node["unchecked"]), []).append(clean(node["node_name"]))
        upgrade = command(f"backends upgrade {name}")
        notes += [
            f"{name}: cannot be checked on {', '.join(nodes)}: {reason}; `{upgrade}` installs the version available now"
            for reason, nodes in sorted(unchecked.items())
        ]
    return notes
