"""`corral backends`: install, upgrade, pin, roll back and delete backends on all nodes."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from corral.cli.client.api import Api, client_command
from corral.cli.client.operation import read_operation
from corral.cli.commands.backend_listing import (
    describe_skipped,
    list_available,
    list_backends,
    list_upgrades,
    report_up_to_date,
)
from corral.cli.commands.policies import list_pins, show_policies
from corral.cli.commands.rollouts import interrupts, print_preview
from corral.cli.commands.watch_operation import exit_code_of, how_to_follow, summary, wait_for
from corral.cli.display.output import clean, print_json, warn_of_galleries
from corral.cli.program_name import command
from corral.core.durations import parse_duration_s
from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.system import SystemIds
from corral.system.clock import pause
from corral.system.http_client import Unreachable

Command = TypeVar("Command", bound=Callable[..., Any])

RETRY_AFTER_S = 1.0
EXIT_CODES = (
    "Exit codes: 0 when all nodes are done, 1 when a node failed, 2 for an invalid request, 3 when the frontend cannot"
    " be reached, 4 when some nodes are still pending (offline, drained, or still running on the worker) and will be"
    " retried automatically."
)
SKIPPED = {"pinned": "pinned", "held_back": "held-back", "rolling_out": "rolled-out"}
"""Why an upgrade of all backends leaves a node alone."""


@click.group("backends")
def backends_group() -> None:
    """Install, upgrade, pin, roll back and delete backends.

    Changes apply to all nodes unless --node or --selector is given. Each change is an operation; see `corral ops`."""


def target_options(command: Command) -> Command:
    """Adds --node, --selector and --all, passed on as `target`, the part of a request that selects nodes."""

    @click.option("--all", "everyone", is_flag=True, help="All nodes, including those that join later. The default.")
    @click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only this node (name or id); repeatable.")
    @click.option(
        "--selector", "selectors", multiple=True, metavar="KEY=VALUE",
        help="Only nodes with this label, including those that join later; repeatable, all must match.",
    )  # fmt: skip
    @wraps(command)
    def wrapped(
        api: Api, *args: Any, nodes: tuple[str, ...], selectors: tuple[str, ...], everyone: bool, **options: Any
    ) -> Any:
        if everyone and (nodes or selectors):
            raise InvalidInput("--all cannot be combined with --node or --selector")
        return command(api, *args, target=read_target(api, nodes, selectors), **options)

    return wrapped  # type: ignore[return-value]


def rollout_options(command: Command) -> Command:
    """Adds the options of a rollout, passed on as `rollout`, a part of a request."""

    @click.option(
        "--strategy", type=click.Choice(["all", "waves", "canary"]), default=None,
        help="All nodes at once, in waves, or stop after the canaries. Default: waves for more than 3 nodes.",
    )  # fmt: skip
    @click.option(
        "--waves", default="", metavar="SIZES",
        help="Cumulative sizes of the waves: `1,25%,50%`. Default: a canary of each class, 10%, 50%, all.",
    )  # fmt: skip
    @click.option("--soak", default=None, metavar="DURATION", help="How long each wave is watched: 90s, 15m.")
    @click.option(
        "--per-node", type=click.Choice(["auto", "rolling", "stop-first"]), default=None,
        help="Start the new version beside the old one, or after it. Default: by the free memory.",
    )  # fmt: skip
    @click.option(
        "--unjudged", type=click.Choice(["pass", "fail"]), default=None,
        help="What a gate that cannot be judged counts as. Default: the setting --rollout-unjudged.",
    )  # fmt: skip
    @wraps(command)
    def wrapped(
        *args: Any,
        strategy: str | None,
        waves: str,
        soak: str | None,
        per_node: str | None,
        unjudged: str | None,
        **options: Any,
    ) -> Any:
        chosen = {
            "strategy": strategy,
            "waves": [size.strip() for size in waves.split(",") if size.strip()] or None,
            "soak_s": _duration_s(soak, "--soak"),
            "per_node": per_node,
            "unjudged_passes": None if unjudged is None else unjudged == "pass",
        }
        given = {name: value for name, value in chosen.items() if value is not None}
        return command(*args, rollout={"rollout": given} if given else {}, **options)

    return wrapped  # type: ignore[return-value]


def preview_options(command: Command) -> Command:
    """Adds --dry-run and --yes, passed on as `asking`."""

    @click.option("--dry-run", is_flag=True, help="Show the waves and how each node would change; change nothing.")
    @click.option("--yes", is_flag=True, help="Do not ask where replicas stop before their successors serve.")
    @wraps(command)
    def wrapped(*args: Any, dry_run: bool, yes: bool, **options: Any) -> Any:
        return command(*args, asking=Asking(dry_run=dry_run, yes=yes), **options)

    return wrapped  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    dry_run: bool
    yes: bool


def read_target(api: Api, nodes: tuple[str, ...], selectors: tuple[str, ...]) -> dict[str, Any]:
    if nodes and selectors:
        raise InvalidInput("--node and --selector cannot be combined")
    if nodes:
        return {"nodes": [api.find_node(node)["id"] for node in nodes]}
    pairs = [selector.partition("=") for selector in selectors]
    wrong = [key for key, equals, _ in pairs if not equals or not key]
    if wrong:
        raise InvalidInput(f"{wrong[0]!r} is not a selector; use for example --selector room=b2")
    return {"selector": {key: value for key, _, value in pairs}} if pairs else {}


def find_labelled(api: Api, selector: dict[str, str]) -> list[str]:
    """Ids of the nodes that have these labels now."""
    nodes = api.call("GET", "api", "nodes")
    return [node["id"] for node in nodes if selector.items() <= (node.get("labels") or {}).items()]


def waiting_options(command: Command) -> Command:
    @click.option(
        "--wait/--no-wait", "wait", default=True, show_default=True, help="Wait for completion and show progress."
    )
    @click.option("--timeout", default=None, metavar="DURATION", help="Maximum waiting time: 90s, 15m.")
    @wraps(command)
    def wrapped(*args: Any, timeout: str | None, **options: Any) -> Any:
        return command(*args, timeout_s=_duration_s(timeout), **options)

    return wrapped  # type: ignore[return-value]


def _duration_s(text: str | None, option: str = "--timeout") -> float | None:
    if text is None:
        return None
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise InvalidInput(f"{option}: {error}") from None


def announce(
    api: Api, requests: Sequence[tuple[Sequence[str], dict[str, Any]]], asking: Asking, *, tolerant: bool = False
) -> None:
    """Prints what the operations would do, before they are started. In a terminal it asks where a model is interrupted.
    Ends the command after a dry run. `tolerant`: one that is refused does not stop the others."""
    if api.as_json and not asking.dry_run:
        return
    query = [("dry_run", "true")]
    previews = []
    for path, body in requests:
        try:
            previews.append(api.call("POST", "api", "backends", *path, body=body, query=query))
        except (Conflict, NotFound) as error:
            if not tolerant:
                raise
            if asking.dry_run:  # otherwise its start says so
                click.echo(f"{clean(path[-1])}: not upgraded: {clean(str(error))}", err=True)
    if api.as_json:
        print_json(previews[0] if len(previews) == 1 else previews)
    else:
        for preview in previews:
            print_preview(preview, everything=asking.dry_run)
    if asking.dry_run:
        raise click.exceptions.Exit(0)
    stopping = sorted({name for preview in previews for name in interrupts(preview)})
    if stopping and not asking.yes and sys.stdin.isatty():
        click.confirm(f"Models on {', '.join(map(clean, stopping))} are interrupted meanwhile. Continue?", abort=True)


def start_operation(api: Api, *path: str, body: dict[str, Any]) -> Any:
    """Starts an operation. A request whose answer is lost is sent again with the same key, so that it starts only
    one."""
    headers = {"Idempotency-Key": SystemIds().uuid()}
    try:
        return api.call("POST", "api", "backends", *path, body=body, headers=headers)
    except Unreachable:
        pause(RETRY_AFTER_S)
        return api.call("POST", "api", "backends", *path, body=body, headers=headers)


def _follow(api: Api, answers: Sequence[Any], *, wait: bool, timeout_s: float | None) -> None:
    """Waits for operations that were all started before. The exit code is that of the worst outcome."""
    outcomes = []
    shown = []
    for answer in answers:
        operation_id = answer["jobID"]
        if not wait:
            shown.append(answer)
            if not api.as_json:
                click.echo(f"Started operation {operation_id}. {how_to_follow(operation_id)}")
            continue
        operation, outcome = wait_for(api, operation_id, timeout_s=timeout_s)
        shown.append(operation)
        outcomes.append(outcome)
        if not api.as_json:
            click.echo(summary(read_operation(operation), outcome))
    if api.as_json:
        print_json(shown[0] if len(shown) == 1 else shown)
    raise click.exceptions.Exit(exit_code_of(outcomes))


@backends_group.command("install", epilog=EXIT_CODES)
@client_command
@click.argument("name", required=False)
@click.option(
    "--uri", default="", help="Install from this location instead of a gallery: an OCI image, a URL, pypi://..."
)
@click.option("--name", "called", default="", help="With --uri: the backend's name. Same as NAME.")
@click.option("--alias", default="", help="With --uri: another name that models may use for the backend.")
@click.option("--force", is_flag=True, help="Install again on nodes that already have it.")
@target_options
@rollout_options
@preview_options
@waiting_options
def install_backend(
    api: Api,
    name: str | None,
    uri: str,
    called: str,
    alias: str,
    force: bool,
    target: dict[str, Any],
    rollout: dict[str, Any],
    asking: Asking,
    **waiting: Any,
) -> None:
    """Install a backend. Nodes that join later get it too, unless --node is given.

    NAME@VERSION installs that version and pins it; VERSION may be the beginning of a digest."""
    if uri and name and not called:
        called, name = name, None
    if bool(name) == bool(uri):
        raise InvalidInput(
            f"nothing to install: give a NAME from `{command('backends available')}`, or a NAME and --uri"
        )
    if uri:
        if not called:
            raise InvalidInput("--uri requires a NAME for the backend")
        body = {"uri": uri, "name": called, "alias": alias, "force": force, **target, **rollout}
        announce(api, [(["install-external"], body)], asking)
        _follow(api, [start_operation(api, "install-external", body=body)], **waiting)
        return
    if called or alias:
        raise InvalidInput("--name and --alias require --uri")
    if not target:
        _report_replaced(api, (name or "").split("@"))
    body = {"force": force, **target, **rollout}
    announce(api, [(["install", name or ""], body)], asking)
    _follow(api, [start_operation(api, "install", name or "", body=body)], **waiting)


def _report_replaced(api: Api, names: Sequence[str]) -> None:
    """Reports the policies that an install on all nodes replaces."""
    for policy in api.call("GET", "api", "policies"):
        if policy["backend"] in names and policy["selector"]:
            where = " ".join(f"{key}={value}" for key, value in policy["selector"].items())
            click.echo(f"This replaces the policy for nodes with {where}.", err=True)


@backends_group.command("upgrade", epilog=EXIT_CODES)
@client_command
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Upgrade all backends, except pinned ones.")
@click.option("--unpin", is_flag=True, help="Upgrade pinned nodes too, and let them follow the galleries again.")
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only this node (name or id); repeatable.")
@click.option(
    "--selector", "selectors", multiple=True, metavar="KEY=VALUE", help="Only nodes with this label; repeatable."
)
@rollout_options
@preview_options
@waiting_options
def upgrade_backend(
    api: Api,
    name: str | None,
    everything: bool,
    unpin: bool,
    nodes: tuple[str, ...],
    selectors: tuple[str, ...],
    rollout: dict[str, Any],
    asking: Asking,
    wait: bool,
    timeout_s: float | None,
) -> None:
    """Upgrade a backend on the nodes that have it.

    Replicas keep serving with the old version until the new one is ready. Nodes where the version is pinned are
    skipped. More than 3 nodes are upgraded in waves; see `corral rollouts`."""
    if unpin and everything:
        raise InvalidInput("--unpin needs the NAME of one backend")
    if bool(name) == everything:
        raise InvalidInput(f"nothing to upgrade: give a NAME from `{command('backends upgrades')}`, or --all")
    target = read_target(api, nodes, selectors)
    if name:
        body = {**({"unpin": True} if unpin else {}), **target, **rollout}
        announce(api, [(["upgrade", name], body)], asking)
        _follow(api, [start_operation(api, "upgrade", name, body=body)], wait=wait, timeout_s=timeout_s)
        return
    upgrades = _upgrades_on(api, target)
    names = [each for each, nodes in sorted(upgrades.items()) if not _is_skipped(nodes)]
    for note in describe_skipped(upgrades):
        click.echo(note, err=True)
    if not names and not api.as_json:
        unread = warn_of_galleries(api.call("GET", "backends", "galleries"))
        report_up_to_date(api, unread=bool(unread), skipped=_skipped_word(upgrades))
    body = {**target, **rollout}
    announce(api, [(["upgrade", name], body) for name in names], asking, tolerant=True)
    _follow(api, _start_upgrades(api, names, body), wait=wait, timeout_s=timeout_s)


def _upgrades_on(api: Api, target: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By backend: the targeted nodes that have an older version."""
    upgrades = api.call("GET", "api", "backends", "upgrades")
    found = {name: upgrade.get("node_drift") or [] for name, upgrade in upgrades.items()}
    if not target:
        return found
    targeted = set(target.get("nodes") or find_labelled(api, target["selector"]))
    outdated = {name: [node for node in nodes if node["node_id"] in targeted] for name, nodes in found.items()}
    return {name: nodes for name, nodes in outdated.items() if nodes}


def _is_skipped(nodes: list[dict[str, Any]]) -> bool:
    """Whether its version is pinned, held back or being rolled out on all these nodes."""
    return bool(nodes) and all(any(node.get(field) for field in SKIPPED) for node in nodes)


def _skipped_word(upgrades: dict[str, list[dict[str, Any]]]) -> str:
    nodes = [node for there in upgrades.values() for node in there]
    return " and ".join(word for field, word in SKIPPED.items() if any(node.get(field) for node in nodes))


def _start_upgrades(api: Api, names: Sequence[str], body: dict[str, Any]) -> list[Any]:
    """Starts an upgrade of each backend. One that is frozen or was just deleted does not stop the others."""
    answers = []
    for name in names:
        try:
            answers.append(start_operation(api, "upgrade", name, body=body))
        except (Conflict, NotFound) as error:
            click.echo(f"{clean(name)}: not upgraded: {clean(str(error))}", err=True)
    return answers


@backends_group.command("rollback", epilog=EXIT_CODES)
@client_command
@click.argument("name")
@click.option(
    "--to", "--digest", "to", default=None, metavar="VERSION",
    help="The version, or the beginning of its digest. Default: the previous one.",
)  # fmt: skip
@click.option("--reason", default="", help="Why; shown wherever the pin is shown.")
@target_options
@waiting_options
def roll_back_backend(api: Api, name: str, to: str | None, reason: str, target: dict[str, Any], **waiting: Any) -> None:
    """Roll back to the previous version, in seconds, and pin it.

    That version is still on the nodes' disks: nothing is downloaded. Nodes that join later get it too, until
    `corral backends follow`."""
    body = {**({"to": to} if to else {}), **({"reason": reason} if reason else {}), **target}
    _follow(api, [start_operation(api, name, "rollback", body=body)], **waiting)


@backends_group.command("pin", epilog=EXIT_CODES)
@client_command
@click.argument("name")
@click.argument("version")
@click.option("--reason", default="", help="Why; shown wherever the pin is shown.")
@target_options
@rollout_options
@preview_options
@waiting_options
def pin_backend(
    api: Api,
    name: str,
    version: str,
    reason: str,
    target: dict[str, Any],
    rollout: dict[str, Any],
    asking: Asking,
    **waiting: Any,
) -> None:
    """Pin a backend to a VERSION, or to a digest by its beginning.

    Nodes with another version change to it. Nodes that join, return or lose their disk get it too. Upgrades skip
    pinned nodes until `corral backends follow`."""
    body = {"version": version, **({"reason": reason} if reason else {}), **target, **rollout}
    announce(api, [([name, "pin"], body)], asking)
    _follow(api, [start_operation(api, name, "pin", body=body)], **waiting)


@backends_group.command("follow", epilog=EXIT_CODES)
@client_command
@click.argument("name")
@click.option("--reason", default="", help="Why; recorded in the audit log.")
@target_options
@waiting_options
def follow_backend(api: Api, name: str, reason: str, target: dict[str, Any], **waiting: Any) -> None:
    """Follow the galleries again: end the pins of a backend.

    Installed versions stay until `corral backends upgrade`; new nodes get the newest version."""
    body = {**({"reason": reason} if reason else {}), **target}
    _follow(api, [start_operation(api, name, "follow", body=body)], **waiting)


@backends_group.command("delete", epilog=EXIT_CODES)
@client_command
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@target_options
@waiting_options
def delete_backend(api: Api, name: str, yes: bool, target: dict[str, Any], **waiting: Any) -> None:
    """Delete a backend. Nodes that are offline now delete it when they return."""
    if not yes and not sys.stdin.isatty():
        raise InvalidInput("not a terminal: pass --yes to confirm")
    ends = clean(api.call("GET", "api", "backends", name, "dependents", query=_as_query(target))["consequence"])
    if ends:
        click.echo(f"{ends}.", err=True)
    if not yes:
        where = "the selected nodes" if target else "all nodes"
        click.confirm(f"Delete {name} from {where}?", abort=True)
    _follow(api, [start_operation(api, "delete", name, body=target)], **waiting)


for _command in (list_available, list_backends, list_upgrades, list_pins, show_policies):
    backends_group.add_command(_command)


def _as_query(target: dict[str, Any]) -> list[tuple[str, str]]:
    nodes = [("node", node) for node in target.get("nodes", ())]
    return nodes + [("selector", f"{key}={value}") for key, value in target.get("selector", {}).items()]
