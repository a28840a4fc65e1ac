"""`corral nodes`: the nodes of the cluster."""

import sys
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_fields, print_json, print_table, show_time
from corral.cli.display.slow_builds import read_slow_builds, slow_line
from corral.cli.program_name import command
from corral.core.backends.site_downloads import SITE_LABEL, site_of
from corral.core.causes import join_reasons
from corral.core.durations import format_age
from corral.core.errors import InvalidInput
from corral.core.sizes import format_bytes

JUST_SEEN_S = 30.0


@click.group("nodes")
def nodes_group() -> None:
    """List, approve, drain, label and remove nodes.

    NODE is a node's name, its id, or the first characters of its id."""


def _used(available: int | None, total: int | None) -> str:
    """Used and total memory, as the web UI shows it."""
    if total is None:
        return "unknown"
    if total == 0:
        return "-"
    return f"{format_bytes(max(0, total - available)) if available is not None else '?'} / {format_bytes(total)}"


def _free(available: int | None, total: int | None) -> str:
    """Free and total disk space. Used space is not shown: the rest may be reserved or belong to other users."""
    if not total:
        return "unknown"
    return f"{format_bytes(available) if available is not None else '?'} free of {format_bytes(total)}"


def _used_short(available: int | None, total: int | None) -> str:
    """Used and total memory in few characters: `12/24G`."""
    if not total:
        return "?" if total is None else "-"
    unit, size = ("T", 1 << 40) if total >= 1000 << 30 else ("G", 1 << 30) if total >= 100 << 20 else ("M", 1 << 20)
    used = _short((total - available) / size) if available is not None else "?"
    return f"{used}/{_short(total / size)}{unit}"


def _short(number: float) -> str:
    return f"{max(0.0, number):.1f}" if number < 9.95 else f"{number:.0f}"


def _seen(node: dict[str, Any]) -> str:
    age_s = node["last_seen_age_s"]
    return "never" if age_s is None else f"{format_age(age_s)} ago"


@nodes_group.command("list")
@client_command
def list_nodes(api: Api) -> None:
    """List nodes and their status.

    GPU (memory), RAM and DISK are used/total, in GiB (G), MiB (M) or TiB (T)."""
    nodes = api.call("GET", "api", "nodes")
    if api.as_json:
        print_json(nodes)
        return
    if not nodes:
        click.echo(f"No nodes yet. `{command('join-command')}` prints the command that adds one.")
        return
    columns = ("NAME", "STATUS", "CAPABILITY", "GPU", "RAM", "DISK", "MODELS", "SEEN", "ID", "NOTE")
    print_table(
        columns,
        [
            (
                node["name"],
                node["state"],
                node["capability"] or "unknown",
                _used_short(node["available_vram"], node["total_vram"]),
                _used_short(node["available_ram"], node["total_ram"]),
                _used_short(node["available_disk"], node["total_disk"]),
                str(node["model_count"]),
                _seen(node).removesuffix(" ago"),
                node["id"][:8],
                _note(node),
            )
            for node in nodes
        ],
        may_cut=("NAME", "CAPABILITY", "NOTE"),
    )


@nodes_group.command("show")
@client_command
@click.argument("node")
def show_node(api: Api, node: str) -> None:
    """Show all details of a node."""
    found = api.find_node(node)
    replicas = api.call("GET", "api", "nodes", found["id"], "models")
    slow = [one for one in read_slow_builds(api) if one["node_id"] == found["id"]]
    if api.as_json:
        print_json({**found, "models": replicas, "slow_builds": slow})
        return
    labels = [f"{key}={value}" for key, value in sorted(found["labels"].items())]
    gpus = [
        f"{gpu['name'] or gpu['vendor']} ({_used(gpu['memory_free_bytes'], gpu['memory_total_bytes'])} used)"
        for gpu in found["gpus"]
    ]
    rows: list[tuple[str, str]] = [
        ("NAME", found["name"]),
        ("ID", found["id"]),
        ("STATUS", " - ".join(part for part in (found["state"], found["status_reason"]) if part)),
        ("TYPE", found["node_type"]),
        ("ADDRESS", f"{found['address']} (backends), {found['http_address']} (files)"),
        ("PLATFORM", found["platform"] or "unknown"),
        ("WORKER", f"Corral {found['version']}" if found["version"] else "not a Corral worker"),
        ("CPU", f"{found['cpu_model'] or 'unknown'}, {found['cpu_count'] or '?'} cores"),
        ("GPUS", "; ".join(gpus) or "none found"),
        (
            "CAPABILITY",
            f"{found['capability'] or 'unknown'} ({found['capability_reason'] or 'reported by the worker'})",
        ),
        *(
            [("GPU MEMORY", _used(found["available_vram"], found["total_vram"]) + " used")]
            if found["total_vram"]
            else []
        ),
        ("RAM", _used(found["available_ram"], found["total_ram"]) + " used"),
        ("DISK", _free(found["available_disk"], found["total_disk"])),
        ("REPLICAS", _listed(replicas) or "none"),
        ("IN FLIGHT", f"{found['in_flight_count']} requests"),
        ("REPLICA LIMIT", _limit(found["max_replicas_per_model"])),
        ("MEMORY BUDGET", f"{found['vram_budget']} of its memory" if found["vram_budget"] else "all of its memory"),
        ("ISOLATION", _isolation(found)),
        ("LABELS", " ".join(labels) or "none"),
        *([("SITE", _site(found["labels"]))] if found["version"] else []),
        ("LAST SEEN", _seen(found)),
    ]
    rows += [("PROBLEM", problem) for problem in found["problems"]]
    rows += [("SLOW", slow_line(one)) for one in slow]
    if found["conflict"]:
        rows.append(("CONFLICT", found["conflict"]["message"]))
    rows += [("CLAIMED BY", _claim(found["name"], claim)) for claim in found["claims"]]
    if found["refused"]:
        rows.append(("REJECTED", _rejected(found)))
    print_fields(rows)


def _site(labels: dict[str, str]) -> str:
    site = site_of(labels)
    return site if labels.get(SITE_LABEL) else f"{site} (set another with the label `{SITE_LABEL}`)"


def _rejected(node: dict[str, Any]) -> str:
    """Messages that the frontends rejected: the worker is broken, of another version, or hostile."""
    count = node["refused"]["count"]
    messages = "message" if count == 1 else "messages"
    return f"{count} {messages} of this node rejected; the latest: {node['refused']['reason']}"


def _note(node: dict[str, Any]) -> str:
    conflict = (node["conflict"] or {}).get("message")
    claims = "; ".join(f"claimed by {claim['address']} ({claim['id'][:8]})" for claim in node["claims"])
    rejected = _rejected(node) if node["refused"] else ""
    return join_reasons((node["status_reason"], claims, conflict or "", rejected))


def _claim(name: str, claim: dict[str, Any]) -> str:
    kind = "a LocalAI worker" if claim["localai"] else "a machine with another key"
    claim_id = claim["id"][:8]
    how, how_not = (command(f"nodes {verb} {name} --claim {claim_id}") for verb in ("approve", "reject"))
    return (
        f"{claim_id}: {kind} at {claim['address']} ({claim['http_address'] or 'no file server'}), since"
        f" {show_time(claim['made_at'])} UTC, last request {show_time(claim['seen_at'])} UTC; `{how}` if it replaces"
        f" this node, `{how_not}` if it does not"
    )


def _isolation(found: dict[str, Any]) -> str:
    if found["isolation"] is None:
        return "unknown: its worker does not report it"
    return f"{found['isolation']}: {found['isolation_reason']}"


def _limit(most: int) -> str:
    return f"{most} {'replica' if most == 1 else 'replicas'} per model"


def _listed(replicas: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['model_name']} (slot {one['replica_index']}, {one['corral_state']})" for one in replicas)


def _act(api: Api, node: str, verb: str, done: str = "", *, body: dict[str, Any] | None = None) -> None:
    """Sends a command for a node. Prints `done`, or the frontend's message."""
    found = api.find_node(node)
    answer = api.call("POST", "api", "nodes", found["id"], verb, body=body)
    if api.as_json:
        print_json(answer)
    else:
        click.echo(f"{found['name']}: {done or answer['message']}")


@nodes_group.command("approve")
@client_command
@click.argument("node")
@click.option("--claim", help="Id of the claim of the machine that replaces NODE; `current` keeps the current machine.")
def approve_node(api: Api, node: str, claim: str | None) -> None:
    """Approve a pending node, or a machine that replaces NODE.

    A reinstalled or different machine may register under the name of NODE. It then waits as a claim, which
    `nodes show` lists. With --claim it takes over NODE's name and settings; the previous machine is rejected from then
    on."""
    body = {"claim": claim} if claim is not None else None
    _act(api, node, "approve", body=body)


@nodes_group.command("reject")
@client_command
@click.argument("node")
@click.option("--claim", required=True, help="Id of the claim to reject.")
def reject_claim(api: Api, node: str, claim: str) -> None:
    """Reject a machine that claims to be NODE. NODE itself is not changed."""
    _act(api, node, "reject", body={"claim": claim})


@nodes_group.command("drain")
@client_command
@click.argument("node")
def drain_node(api: Api, node: str) -> None:
    """Drain a node (no new work)."""
    _act(api, node, "drain", f"draining; no new work until `{command(f'nodes resume {node}')}`")


@nodes_group.command("resume")
@client_command
@click.argument("node")
def resume_node(api: Api, node: str) -> None:
    """Resume a drained node."""
    found = api.find_node(node)
    _act(api, found["id"], "resume", "resumed" if found.get("drain_requested", True) else _not_drained(found))


def _not_drained(node: dict[str, Any]) -> str:
    stops = "; its worker is stopping" if node["draining"] else ""
    return f"was not drained, so nothing changed; it is {node['status']}{stops}"


@nodes_group.command("label")
@client_command
@click.argument("node")
@click.argument("labels", nargs=-1, required=True)
def label_node(api: Api, node: str, labels: tuple[str, ...]) -> None:
    """Set labels (key=value) or remove them (key-)."""
    found = api.find_node(node)
    changed = {}
    for label in labels:
        key, separator, value = label.partition("=")
        if separator:
            changed[key] = value
        elif not label.endswith("-"):
            raise InvalidInput(f"{label!r} is neither key=value nor key-")
    for label in labels:
        if "=" not in label:
            api.call("DELETE", "api", "nodes", found["id"], "labels", label.removesuffix("-"))
    if changed:
        api.call("PATCH", "api", "nodes", found["id"], "labels", body=changed)
    after = api.call("GET", "api", "nodes", found["id"])
    if api.as_json:
        print_json(after)
    else:
        shown = " ".join(f"{key}={value}" for key, value in sorted(after["operator_labels"].items()))
        click.echo(f"{found['name']}: {shown or 'no custom labels'}")


@nodes_group.command("budget")
@client_command
@click.argument("node")
@click.argument("budget")
def set_budget(api: Api, node: str, budget: str) -> None:
    """Set how much of a node's memory models may use.

    BUDGET is a share (80%) or an amount (12GiB) of GPU memory, or of RAM on a node without GPUs; `none` restores the
    worker's own setting. Running replicas are not stopped."""
    found = api.find_node(node)
    after = _set(api, found, "vram-budget", None if budget == "none" else budget)
    if not api.as_json:
        click.echo(f"{found['name']}: models may use {after['vram_budget'] or 'all'} of its memory")


@nodes_group.command("limit")
@client_command
@click.argument("node")
@click.argument("replicas", metavar="REPLICAS|none")
def set_limit(api: Api, node: str, replicas: str) -> None:
    """Set how many replicas of one model a node may run.

    `none` restores the worker's own setting."""
    found = api.find_node(node)
    if replicas != "none" and not replicas.isdecimal():
        raise InvalidInput(f"{replicas!r} is neither a number nor `none`")
    after = _set(api, found, "max-replicas-per-model", None if replicas == "none" else int(replicas))
    if not api.as_json:
        click.echo(f"{found['name']}: {_limit(after['max_replicas_per_model'])}")


def _set(api: Api, node: dict[str, Any], what: str, value: str | int | None) -> dict[str, Any]:
    """Sets a node's property; None removes the administrator's value. Returns the node after the change."""
    if value is None:
        api.call("DELETE", "api", "nodes", node["id"], what)
    else:
        api.call("PUT", "api", "nodes", node["id"], what, body={"value": value})
    after: dict[str, Any] = api.call("GET", "api", "nodes", node["id"])
    if api.as_json:
        print_json(after)
    return after


@nodes_group.command("remove")
@client_command
@click.argument("node")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def remove_node(api: Api, node: str, yes: bool) -> None:
    """Remove a node and revoke its credentials.

    If its worker still runs, it asks to join again and must be approved."""
    found = api.find_node(node)
    if not yes and not sys.stdin.isatty():
        raise InvalidInput("not a terminal: pass --yes to confirm")
    if not yes:
        click.confirm(f"Remove {found['name']} ({found['status']}) and revoke its credentials?", abort=True)
    answer = api.call("DELETE", "api", "nodes", found["id"])
    if api.as_json:
        print_json(answer)
    else:
        click.echo(f"{found['name']}: removed")
        age_s = found["last_seen_age_s"]
        if age_s is not None and age_s < JUST_SEEN_S and found["status"] != "offline":
            click.echo(
                f"Its worker may still be running (seen {_seen(found)}) and will ask to join again. Stop it there.",
                err=True,
            )
