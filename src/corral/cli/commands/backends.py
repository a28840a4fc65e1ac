"""`corral backends`: installing, upgrading, rolling back and deleting, on every machine from one place."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

from corral.cli.client.api import Api, clean, client_command, print_json
from corral.cli.client.operation import read_operation
from corral.cli.client.targets import find_labelled, read_target, target_options
from corral.cli.commands.backend_listing import list_available, list_backends, list_upgrades, say_nothing_newer
from corral.cli.commands.policies import show_policies
from corral.cli.commands.watch_operation import exit_code_of, how_to_follow, summary, wait_for
from corral.cli.display.gallery_warnings import warn_of_galleries
from corral.cli.program_name import command
from corral.core.durations import parse_duration_s
from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.system import SystemIds
from corral.system.clock import pause
from corral.system.http_json import Unreachable

Command = TypeVar("Command", bound=Callable[..., Any])

AGAIN_AFTER_S = 1.0
WAITING = (
    "Exit code: 0 when every machine is done, 1 when one failed, 4 when the rest follows later by itself (a machine is"
    " away or drained, or its worker needs longer), 2 for a bad request, 3 when the frontend cannot be reached."
)


@click.group("backends")
def backends_group() -> None:
    """Install, upgrade, roll back and delete backends everywhere."""


def waiting_options(command: Command) -> Command:
    @click.option("--wait/--no-wait", "wait", default=True, help="Wait until it is over, and tell how far it is.")
    @click.option("--timeout", default=None, metavar="DURATION", help="Wait no longer than this: 90s, 15m.")
    @wraps(command)
    def wrapped(*args: Any, timeout: str | None, **options: Any) -> Any:
        return command(*args, timeout_s=_duration_s(timeout), **options)

    return wrapped  # type: ignore[return-value]


def _duration_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise InvalidInput(f"--timeout: {error}") from None


def ask(api: Api, *path: str, body: dict[str, Any]) -> Any:
    """The key makes it one operation, though it may be sent twice: a frontend that dies may have taken it in."""
    headers = {"Idempotency-Key": SystemIds().uuid()}
    try:
        return api.call("POST", "api", "backends", *path, body=body, headers=headers)
    except Unreachable:
        pause(AGAIN_AFTER_S)
        return api.call("POST", "api", "backends", *path, body=body, headers=headers)


def _follow(api: Api, answers: Sequence[Any], *, wait: bool, timeout_s: float | None) -> None:
    """All were asked for before any is waited for; the exit code is that of the worst."""
    outcomes = []
    shown = []
    for answer in answers:
        operation_id = answer["jobID"]
        if not wait:
            shown.append(answer)
            if not api.as_json:
                click.echo(f"Asked for: operation {operation_id}. {how_to_follow(operation_id)}")
            continue
        operation, outcome = wait_for(api, operation_id, timeout_s=timeout_s)
        shown.append(operation)
        outcomes.append(outcome)
        if not api.as_json:
            click.echo(summary(read_operation(operation), outcome))
    if api.as_json:
        print_json(shown[0] if len(shown) == 1 else shown)
    raise click.exceptions.Exit(exit_code_of(outcomes))


@backends_group.command("install", epilog=WAITING)
@client_command
@click.argument("name", required=False)
@click.option("--uri", default="", help="From this location instead of a gallery: an OCI image, a URL, pypi://...")
@click.option("--name", "called", default="", help="What to call it, with --uri; NAME will do.")
@click.option("--alias", default="", help="A short name that models may use for it; with --uri.")
@click.option("--force", is_flag=True, help="Install again where it is installed.")
@target_options
@waiting_options
def install_backend(
    api: Api, name: str | None, uri: str, called: str, alias: str, force: bool, target: dict[str, Any], **waiting: Any
) -> None:
    """Install a backend. Machines that join later get it too, unless machines were named."""
    if uri and name and not called:
        called, name = name, None
    if bool(name) == bool(uri):
        raise InvalidInput(
            f"say what to install: a NAME from `{command('backends available')}`, or one of your own with --uri"
        )
    if uri:
        if not called:
            raise InvalidInput("--uri needs a NAME: what the backend is to be called")
        body = {"uri": uri, "name": called, "alias": alias, "force": force, **target}
        _follow(api, [ask(api, "install-external", body=body)], **waiting)
        return
    if called or alias:
        raise InvalidInput("--name and --alias go with --uri; a backend of a gallery has its own")
    if not target:
        _tell_replaced(api, (name or "").rpartition("@")[2])
    _follow(api, [ask(api, "install", name or "", body={"force": force, **target})], **waiting)


def _tell_replaced(api: Api, backend: str) -> None:
    """What an install everywhere puts an end to."""
    for policy in api.call("GET", "api", "policies"):
        if policy["backend"] == backend and policy["selector"]:
            where = " ".join(f"{key}={value}" for key, value in policy["selector"].items())
            click.echo(f"This replaces the policy for machines with {where}.", err=True)


@backends_group.command("upgrade", epilog=WAITING)
@client_command
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Everything newer, but for what was rolled back.")
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only this machine (name or id); repeatable.")
@click.option("--selector", "selectors", multiple=True, metavar="KEY=VALUE", help="Only machines with this label.")
@waiting_options
def upgrade_backend(
    api: Api,
    name: str | None,
    everything: bool,
    nodes: tuple[str, ...],
    selectors: tuple[str, ...],
    wait: bool,
    timeout_s: float | None,
) -> None:
    """Upgrade a backend where it is installed. What serves goes on serving until the new version is ready."""
    if bool(name) == everything:
        raise InvalidInput(f"say what to upgrade: a NAME from `{command('backends upgrades')}`, or --all")
    target = read_target(api, nodes, selectors)
    if name:
        _follow(api, [ask(api, "upgrade", name, body=target)], wait=wait, timeout_s=timeout_s)
        return
    upgrades = _upgrades_on(api, target)
    names = [each for each, nodes in sorted(upgrades.items()) if not _is_held(nodes)]
    if not names and not api.as_json:
        unread = warn_of_galleries(api.call("GET", "backends", "galleries"))
        say_nothing_newer(api, unread=bool(unread), held=bool(upgrades))
    _follow(api, _ask_each(api, names, {"skip_rolled_back": True, **target}), wait=wait, timeout_s=timeout_s)


def _upgrades_on(api: Api, target: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By backend: the machines that have something older, of those that are meant."""
    upgrades = api.call("GET", "api", "backends", "upgrades")
    found = {name: upgrade.get("node_drift") or [] for name, upgrade in upgrades.items()}
    if not target:
        return found
    meant = set(target.get("nodes") or find_labelled(api, target["selector"]))
    there = {name: [node for node in nodes if node["node_id"] in meant] for name, nodes in found.items()}
    return {name: nodes for name, nodes in there.items() if nodes}


def _is_held(nodes: list[dict[str, Any]]) -> bool:
    """Rolled back wherever it is."""
    return bool(nodes) and all(node.get("rolled_back") for node in nodes)


def _ask_each(api: Api, names: Sequence[str], body: dict[str, Any]) -> list[Any]:
    """One that cannot be upgraded now, because it is frozen or was just deleted, keeps none of the others back."""
    answers = []
    for name in names:
        try:
            answers.append(ask(api, "upgrade", name, body=body))
        except (Conflict, NotFound) as error:
            click.echo(f"{clean(name)}: not upgraded: {clean(str(error))}", err=True)
    return answers


@backends_group.command("rollback", epilog=WAITING)
@client_command
@click.argument("name")
@click.option("--digest", default=None, help="To this version; without it, to the one before.")
@target_options
@waiting_options
def roll_back_backend(api: Api, name: str, digest: str | None, target: dict[str, Any], **waiting: Any) -> None:
    """Go back to the version before, in seconds.

    It is still on the machines' disks: nothing is downloaded."""
    body = {"to": digest, **target} if digest else target
    _follow(api, [ask(api, name, "rollback", body=body)], **waiting)


@backends_group.command("delete", epilog=WAITING)
@client_command
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@target_options
@waiting_options
def delete_backend(api: Api, name: str, yes: bool, target: dict[str, Any], **waiting: Any) -> None:
    """Delete a backend. It does not come back with a machine that is away now."""
    if not yes and not sys.stdin.isatty():
        raise InvalidInput("nobody is there to confirm the deletion; add --yes")
    ends = clean(api.call("GET", "api", "backends", name, "dependents", query=_as_query(target))["consequence"])
    if ends:
        click.echo(f"{ends}.", err=True)
    if not yes:
        where = "the machines named" if target else "every machine"
        click.confirm(f"Delete {name} from {where}?", abort=True)
    _follow(api, [ask(api, "delete", name, body=target)], **waiting)


for _command in (list_available, list_backends, list_upgrades, show_policies):
    backends_group.add_command(_command)


def _as_query(target: dict[str, Any]) -> list[tuple[str, str]]:
    nodes = [("node", node) for node in target.get("nodes", ())]
    return nodes + [("selector", f"{key}={value}") for key, value in target.get("selector", {}).items()]
