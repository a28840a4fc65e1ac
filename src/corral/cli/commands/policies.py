"""`corral backends policies`: what is to hold on every machine, and where it does not."""

from datetime import datetime
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json, print_table, show_time
from corral.cli.program_name import command
from corral.core.backends.intents import short_digest
from corral.core.durations import format_age
from corral.core.errors import Conflict, NotFound
from corral.system import SystemClock

EXCEPTIONS_TOLD = 5


@click.command("policies")
@client_command
@click.option("--drift", type=(str, click.Choice(["heal", "report", "freeze"])), default=None, metavar="POLICY HOW")
@click.option("--end", default=None, metavar="POLICY", help="Let a policy hold no longer. Nothing is deleted by that.")
def show_policies(api: Api, drift: tuple[str, str] | None, end: str | None) -> None:
    """What is to hold on every machine, now and later. --drift says what to do where it does not:
    heal it, report it, or freeze it as it is.

    POLICY is an id, the beginning of one, or the name of a backend that only one policy is about.

    EXCEPT names machines on which something else was asked for since, or that nothing fits: the policy does not hold
    there, and changes nothing."""
    if drift is not None:
        api.call("PATCH", "api", "policies", _find_policy(api, drift[0]), body={"on_drift": drift[1]})
    if end is not None:
        api.call("DELETE", "api", "policies", _find_policy(api, end))
    policies = api.call("GET", "api", "policies")
    if api.as_json:
        print_json(policies)
        return
    if not policies:
        click.echo("There are no policies. An install on all machines, or with --selector, makes one.")
        return
    now_s = SystemClock().now_ms() / 1000
    print_table(
        ("POLICY", "BACKEND", "WANTED", "WHERE", "EXCEPT", "ON DRIFT", "SINCE (UTC)", "BY"),
        [
            (
                policy["id"],
                policy["backend"],
                policy["ensure"] + _say_held(policy),
                " ".join(f"{key}={value}" for key, value in policy["selector"].items()) or "everywhere",
                say_exceptions(policy, now_s) or "-",
                policy["on_drift"],
                show_time(policy["created_at"]),
                policy["created_by"],
            )
            for policy in policies
        ],
    )


def _say_held(policy: dict[str, Any]) -> str:
    held = policy.get("rolled_back_to") or []
    versions = ", ".join(f"{one['variant']} {one['version'] or short_digest(one['digest'])}" for one in held)
    return f" (rolled back to {versions})" if versions else ""


def _find_policy(api: Api, wanted: str) -> str:
    policies = api.call("GET", "api", "policies")
    named = [policy["id"] for policy in policies if wanted.lower() in (policy["id"], policy["backend"].lower())]
    found = named or [policy["id"] for policy in policies if policy["id"].startswith(wanted)]
    if len(found) > 1:
        raise Conflict(f"{wanted!r} fits {len(found)} policies; give the id of the one you mean")
    if not found:
        raise NotFound(f"there is no policy {wanted!r}; `{command('backends policies')}` shows the ones there are")
    return str(found[0])


def say_exceptions(policy: dict[str, Any], now_s: float) -> str:
    """`node-b (deleted 3m ago), node-c (...) and 4 more`. Of a frontend that tells none, nothing."""
    told = (policy.get("exceptions") or [])[:EXCEPTIONS_TOLD]
    more = policy.get("exception_count", 0) - len(told)
    words = ", ".join(f"{one['node_name']} ({_why(one, policy['backend'], now_s)})" for one in told)
    return words + (f" and {more} more" if more > 0 else "")


def _why(exception: dict[str, Any], backend: str, now_s: float) -> str:
    if exception["cause"] == "no_build":
        return str(exception["reason"])
    at = exception["at"]
    ago = f" {format_age(now_s - datetime.fromisoformat(at).timestamp())} ago" if at else ""
    if exception["cause"] == "called_off":
        return f"{exception['verb']} called off{ago}"
    other = f"{exception['backend']} " if exception["backend"] != backend else ""
    asked = {"deleted": "delete asked for", "installed": "install asked for"}
    return other + (exception["cause"] if exception["done"] else asked[exception["cause"]]) + ago
