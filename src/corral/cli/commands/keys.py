"""`corral keys`: API keys."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_fields, print_json, print_table, show_time
from corral.core.durations import parse_duration_s
from corral.core.errors import InvalidInput
from corral.system import SystemClock

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT = "default"
# By option: the limit's name in the API, and its words in listings.
LIMITS = {
    "rpm": ("requests_per_minute", "requests per minute"),
    "tpm": ("tokens_per_minute", "tokens per minute"),
    "concurrent": ("concurrent_requests", "concurrent requests"),
    "daily_tokens": ("tokens_per_day", "tokens per day"),
    "monthly_tokens": ("tokens_per_month", "tokens per month"),
}


@click.group("keys")
def keys_group() -> None:
    """Create, limit, list and revoke API keys."""


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


class LimitValue(click.ParamType[int | str]):
    """A number, `none` for no limit, or `default`."""

    name = "NUMBER|none|default"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if isinstance(value, int):
            return value
        word = str(value).strip().lower().replace(",", "").replace("_", "")
        if word == DEFAULT:
            return DEFAULT
        if word == "none":
            return 0
        if not word.isdecimal() or int(word) == 0:
            self.fail(f"{value!r} is neither a number above 0, `none`, nor `default`", param, ctx)
        return int(word)


class Expiry(click.ParamType[str]):
    """An age such as `90d`, a date or a time in UTC, or `never`."""

    name = "AGE|DATE|never"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if text.lower() == "never":
            return ""
        try:
            return (_now() + timedelta(seconds=parse_duration_s(text))).isoformat()
        except (ValueError, OverflowError):
            pass
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{value!r} is neither an age such as 90d, a date such as 2030-01-31, nor `never`", param, ctx)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


def limit_options(command: Command) -> Command:
    for option, about in (
        ("--priority", "Order in the queue while all replicas are busy."),
        ("--monthly-tokens", "Tokens in a calendar month (UTC)."),
        ("--daily-tokens", "Tokens in a day (UTC)."),
        ("--concurrent", "Requests that may be open at the same time."),
        ("--tpm", "Tokens per minute, of prompts and answers."),
        ("--rpm", "Requests per minute."),
    ):
        kind = click.Choice(["high", "normal", "low", DEFAULT]) if option == "--priority" else LimitValue()
        command = click.option(option, type=kind, default=None, help=about)(command)
    return command


def _limits(options: dict[str, Any]) -> dict[str, Any]:
    """The given ones, as the API wants them."""
    given = {name: options[option] for option, (name, _) in LIMITS.items() if options[option] is not None}
    if options["priority"] is not None:
        given["priority"] = options["priority"]
    return {name: None if value == DEFAULT else value for name, value in given.items()}


def _describe(limits: dict[str, Any]) -> str:
    """Limits in force, or defaults, in a few words."""
    shown = [f"{limits[name]:,} {words}" for name, words in LIMITS.values() if limits[name]]
    if limits["priority"] not in (None, "normal"):
        shown.append(f"{limits['priority']} priority")
    return ", ".join(shown) or "none"


def _names(models: str | None) -> list[str] | None:
    return None if models is None else [name.strip() for name in models.split(",") if name.strip()]


def _shown(models: list[str] | None) -> str:
    return "all" if models is None else ",".join(models) or "none"


@keys_group.command("create")
@client_command
@click.option("--name", required=True, help="Who or what the key is for.")
@click.option("--scope", type=click.Choice(["admin", "user"]), default="user", show_default=True,
              help="`user` may use models; `admin` may also change the cluster.")  # fmt: skip
@click.option("--models", default=None, help="Comma-separated models and routes that the key may use. Default: all.")
@limit_options
@click.option("--expires", type=Expiry(), default="never", help="When the key stops working. Default: never.")
def create_key(api: Api, name: str, scope: str, models: str | None, expires: str, **options: Any) -> None:
    """Create a key. It is shown only once; Corral stores its hash.

    Limits that are not given are the defaults (`corral keys defaults`)."""
    body = {"name": name, "scope": scope, "models": _names(models), "limits": _limits(options)}
    key = api.call("POST", "api", "keys", body={**body, "expires_at": expires or None})
    if api.as_json:
        print_json(key)
        return
    click.echo(key["key"])
    click.echo(f"Created the {scope} key {name!r}. It is not shown again.", err=True)


@keys_group.command("list")
@client_command
def list_keys(api: Api) -> None:
    """List keys, without their secrets."""
    keys = api.call("GET", "api", "keys")
    if api.as_json:
        print_json(keys)
        return
    print_table(
        ("NAME", "SCOPE", "MODELS", "LIMITS", "PREFIX", "CREATED (UTC)", "CREATED BY", "ID", "STATE"),
        [
            (
                key["name"],
                key["scope"],
                _shown(key["models"]),
                _describe(key["in_force"]),
                key["hint"] + "...",
                show_time(key["created_at"]),
                key["created_by"],
                key["id"],
                _state(key),
            )
            for key in keys
        ],
    )


def _state(key: dict[str, Any]) -> str:
    if key["revoked_at"]:
        return f"revoked {show_time(key['revoked_at'])}"
    if key["expires_at"] is None:
        return "valid"
    expired = datetime.fromisoformat(key["expires_at"]) <= _now()
    return f"{'expired' if expired else 'valid until'} {show_time(key['expires_at'])}"


@keys_group.command("edit")
@client_command
@click.argument("key")
@click.option("--models", default=None, help="Comma-separated models and routes that the key may use; `all` for all.")
@limit_options
@click.option("--expires", type=Expiry(), default=None, help="When the key stops working; `never` for never.")
def edit_key(api: Api, key: str, models: str | None, expires: str | None, **options: Any) -> None:
    """Change the limits, expiry or models of a key.

    KEY is a name or an id. What is not given stays. Takes effect on all frontends within five seconds."""
    body: dict[str, Any] = {}
    if limits := _limits(options):
        body["limits"] = limits
    if expires is not None:
        body["expires_at"] = expires or None
    if models is not None:
        body["models"] = None if models.strip() == "all" else _names(models)
    if not body:
        raise InvalidInput("give at least one change; `corral keys edit --help` lists them")
    changed = api.call("PATCH", "api", "keys", key, body=body)
    if api.as_json:
        print_json(changed)
    else:
        print_fields(
            (
                ("key", changed["name"]),
                ("models", _shown(changed["models"])),
                ("limits", _describe(changed["in_force"])),
                ("state", _state(changed)),
            )
        )


@keys_group.command("defaults")
@client_command
@limit_options
def key_defaults(api: Api, **options: Any) -> None:
    """Show or change the limits of keys that have none.

    They apply to every key, as far as it has no limits of its own."""
    limits = _limits(options)
    found = api.call("PATCH" if limits else "GET", "api", "key-defaults", body=limits or None)
    if api.as_json:
        print_json(found)
    else:
        click.echo(f"default limits: {_describe(found)}")


@keys_group.command("usage")
@client_command
@click.argument("key")
@click.option("--days", type=click.IntRange(1, 400), default=7, show_default=True, help="Days, including today.")
def key_usage(api: Api, key: str, days: int) -> None:
    """Show what a key has used of its limits.

    KEY is a name or an id."""
    found = api.call("GET", "api", "keys", key, "usage", query={"days": str(days)})
    if api.as_json:
        print_json(found)
        return
    limits, used = found["limits"], found["used"]
    print_table(
        ("LIMIT", "USED", "OF"),
        [(words, f"{used[name]:,}", f"{limits[name]:,}" if limits[name] else "-") for name, words in LIMITS.values()],
    )
    if found["days"]:
        click.echo()
        rows = [(day["day"], f"{day['requests']:,}", f"{day['tokens']:,}") for day in found["days"]]
        print_table(("DAY (UTC)", "REQUESTS", "TOKENS"), rows)


@keys_group.command("models")
@client_command
@click.argument("key")
@click.argument("models", required=False)
@click.option("--all", "all_models", is_flag=True, help="Allow all models.")
def change_models(api: Api, key: str, models: str | None, all_models: bool) -> None:
    """Set the models and routes that a key may use.

    MODELS is a comma-separated list. KEY is a name or an id. Takes effect on all frontends within five seconds."""
    if all_models == (models is not None):
        raise InvalidInput("give the models, separated by commas, or --all")
    changed = api.call("PUT", "api", "keys", key, "models", body={"models": _names(models)})
    if api.as_json:
        print_json(changed)
    else:
        click.echo(f"{changed['name']} may use: {_shown(changed['models'])}")


@keys_group.command("revoke")
@client_command
@click.argument("key")
def revoke_key(api: Api, key: str) -> None:
    """Revoke a key.

    KEY is a name or an id. Takes effect immediately on the frontend that handles the request, and on all others
    within five seconds."""
    revoked = api.call("DELETE", "api", "keys", key)
    if api.as_json:
        print_json(revoked)
    else:
        click.echo(f"revoked {revoked['name']} ({revoked['id']})")
