"""`corral backends policies` and `pins`: the desired backends of all nodes, their versions, and exceptions."""

from datetime import datetime
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json, print_table, show_time
from corral.cli.program_name import command
from corral.core.backends.build import short_digest
from corral.core.durations import format_age
from corral.core.errors import Conflict, NotFound
from corral.system import SystemClock

EXCEPTIONS_SHOWN = 5


@click.command("policies")
@client_command
@click.option(
    "--drift",
    type=(str, click.Choice(["correct", "report", "freeze"])),
    default=None,
    metavar="POLICY HOW",
    help="What to do on drift: correct (remove the drift), report (only show it), freeze (also block upgrades).",
)
@click.option(
    "--rollout",
    type=(str, click.Choice(["default", "all", "waves", "canary"])),
    default=None,
    metavar="POLICY STRATEGY",
    help="How versions change: all nodes at once, in waves, canary (waits for a promotion), or default (by settings).",
)
@click.option(
    "--unjudged",
    type=(str, click.Choice(["default", "pass", "fail"])),
    default=None,
    metavar="POLICY HOW",
    help="What a gate that cannot be judged counts as: pass, fail, or default (by settings).",
)
@click.option("--end", default=None, metavar="POLICY", help="Remove a policy. Installed backends are not deleted.")
def show_policies(
    api: Api,
    drift: tuple[str, str] | None,
    rollout: tuple[str, str] | None,
    unjudged: tuple[str, str] | None,
    end: str | None,
) -> None:
    """List and change policies: the desired backends of all nodes.

    An install or delete on all nodes, or with --selector, creates a policy. It also applies to nodes that join later.

    POLICY is an id, its first characters, or the name of a backend with only one policy.

    EXCEPT lists nodes for which a different change was requested later, or that no build supports. The policy does
    not apply to them."""
    if drift is not None:
        api.call("PATCH", "api", "policies", _find_policy(api, drift[0]), body={"on_drift": drift[1]})
    if rollout is not None:
        name, strategy = rollout
        _change_rollout(api, name, strategy=None if strategy == "default" else strategy)
    if unjudged is not None:
        name, counts_as = unjudged
        _change_rollout(api, name, unjudged_passes=None if counts_as == "default" else counts_as == "pass")
    if end is not None:
        api.call("DELETE", "api", "policies", _find_policy(api, end))
    policies = api.call("GET", "api", "policies")
    if api.as_json:
        print_json(policies)
        return
    if not policies:
        click.echo("No policies. An install on all nodes, or with --selector, creates one.")
        return
    now_s = SystemClock().now_ms() / 1000
    print_table(
        (
            "POLICY",
            "BACKEND",
            "DESIRED",
            "VERSION",
            "NODES",
            "EXCEPT",
            "ON DRIFT",
            "ROLLOUT",
            "CREATED (UTC)",
            "CREATED BY",
        ),
        [
            (
                policy["id"],
                policy["backend"],
                policy["ensure"],
                _version(policy),
                " ".join(f"{key}={value}" for key, value in policy["selector"].items()) or "all",
                describe_exceptions(policy, now_s) or "-",
                policy["on_drift"],
                describe_rollout(policy),
                show_time(policy["created_at"]),
                policy["created_by"],
            )
            for policy in policies
        ],
    )


def _change_rollout(api: Api, name: str, **changes: Any) -> None:
    """Keeps what else the policy says about rollouts."""
    policy = _find_policy(api, name)
    before = next(one["rollout"] or {} for one in api.call("GET", "api", "policies") if one["id"] == policy)
    api.call("PATCH", "api", "policies", policy, body={"rollout": {**_request(before), **changes}})


def _request(rollout: dict[str, Any]) -> dict[str, Any]:
    """What a policy says about rollouts, as a request says it."""
    names = {"sizes": "waves"}
    return {names.get(name, name): value for name, value in rollout.items()}


def describe_rollout(policy: dict[str, Any]) -> str:
    """The strategy with what else the policy says about it; `default` where the settings decide."""
    rollout = policy.get("rollout") or {}
    soak_s, sizes, per_node = rollout.get("soak_s"), rollout.get("sizes"), rollout.get("per_node")
    unjudged = {True: "unjudged pass", False: "unjudged fail", None: ""}[rollout.get("unjudged_passes")]
    parts = [
        rollout.get("strategy") or "default",
        f"waves {' '.join(sizes)}" if sizes else "",
        f"soak {soak_s:g} s" if soak_s is not None else "",
        per_node or "",
        unjudged,
    ]
    return ", ".join(filter(None, parts)) if policy["ensure"] == "present" else "-"


def _version(policy: dict[str, Any]) -> str:
    """`follow`, or the pinned versions, the newest pin first."""
    if policy["ensure"] != "present":
        return "-"
    pins = policy.get("pins") or []
    everywhere = any(not pin["selector"] and not pin["nodes"] for pin in pins)
    return ", ".join([*map(_pinned_to, pins), *([] if everywhere else ["follow"])])


def _pinned_to(pin: dict[str, Any]) -> str:
    where = _where(pin)
    return (pin_label(pin)) + (f" on {where}" if where != "all" else "")


def pin_label(pin: dict[str, Any]) -> str:
    """`follow`, a version, or the beginning of each build's digest."""
    if pin["follows"]:
        return "follow"
    digests = (one["version"] or short_digest(one["digest"]) for one in pin["builds"])
    return str(pin["version"] or " ".join(sorted(set(digests))))


def _where(pin: dict[str, Any], names: dict[str, str] | None = None) -> str:
    if pin["nodes"]:
        return " ".join((names or {}).get(node, node[:8]) for node in pin["nodes"])
    return " ".join(f"{key}={value}" for key, value in pin["selector"].items()) or "all"


@click.command("pins")
@client_command
def list_pins(api: Api) -> None:
    """List pinned versions: on which nodes, since when and why.

    Where several pins apply to a node, the newest decides. Nodes without a pin follow the galleries."""
    pins = api.call("GET", "api", "pins")
    if api.as_json:
        print_json(pins)
        return
    if not pins:
        click.echo(f"No pins: all backends follow the galleries. `{command('backends pin NAME VERSION')}` pins one.")
        return
    names = {node["id"]: node["name"] for node in api.call("GET", "api", "nodes")}
    print_table(
        ("BACKEND", "VERSION", "NODES", "SINCE (UTC)", "BY", "REASON"),
        [
            (
                pin["backend"],
                pin_label(pin),
                _where(pin, names),
                show_time(pin["created_at"]),
                pin["created_by"],
                pin["reason"] or "-",
            )
            for pin in pins
        ],
    )


def _find_policy(api: Api, name: str) -> str:
    policies = api.call("GET", "api", "policies")
    named = [policy["id"] for policy in policies if name.lower() in (policy["id"], policy["backend"].lower())]
    found = named or [policy["id"] for policy in policies if policy["id"].startswith(name)]
    if len(found) > 1:
        raise Conflict(f"{name!r} matches {len(found)} policies; give the id of one of them")
    if not found:
        raise NotFound(f"no policy {name!r}; `{command('backends policies')}` lists all policies")
    return str(found[0])


def describe_exceptions(policy: dict[str, Any], now_s: float) -> str:
    """`node-b (deleted 3m ago), node-c (...) and 4 more`; empty without exceptions."""
    shown = (policy.get("exceptions") or [])[:EXCEPTIONS_SHOWN]
    more = policy.get("exception_count", 0) - len(shown)
    words = ", ".join(f"{one['node_name']} ({_why(one, policy['backend'], now_s)})" for one in shown)
    return words + (f" and {more} more" if more > 0 else "")


def _why(exception: dict[str, Any], backend: str, now_s: float) -> str:
    if exception["cause"] == "no_build":
        return str(exception["reason"])
    at = exception["at"]
    ago = f" {format_age(now_s - datetime.fromisoformat(at).timestamp())} ago" if at else ""
    if exception["cause"] == "cancelled":
        return f"{exception['verb']} cancelled{ago}"
    other = f"{exception['backend']} " if exception["backend"] != backend else ""
    requested = {"deleted": "delete requested", "installed": "install requested"}
    return other + (exception["cause"] if exception["done"] else requested[exception["cause"]]) + ago
