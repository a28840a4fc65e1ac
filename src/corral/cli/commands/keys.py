"""`corral keys`: API keys."""

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json, print_table, show_time
from corral.core.errors import InvalidInput


@click.group("keys")
def keys_group() -> None:
    """Make, list and revoke API keys."""


def _names(models: str | None) -> list[str] | None:
    return None if models is None else [name.strip() for name in models.split(",") if name.strip()]


def _shown(models: list[str] | None) -> str:
    return "all" if models is None else ",".join(models) or "none"


@keys_group.command("create")
@client_command
@click.option("--name", required=True, help="Who or what the key is for.")
@click.option("--scope", type=click.Choice(["admin", "user"]), default="user", show_default=True)
@click.option("--models", default=None, help="The only models it may use, separated by commas. Default: all.")
def create_key(api: Api, name: str, scope: str, models: str | None) -> None:
    """Make a key. It is shown this once; only its hash is kept."""
    key = api.call("POST", "api", "keys", body={"name": name, "scope": scope, "models": _names(models)})
    if api.as_json:
        print_json(key)
        return
    click.echo(key["key"])
    click.echo(f"This is the {scope} key {name!r}. It is not shown again.", err=True)


@keys_group.command("list")
@client_command
def list_keys(api: Api) -> None:
    """All keys, without the keys themselves."""
    keys = api.call("GET", "api", "keys")
    if api.as_json:
        print_json(keys)
        return
    print_table(
        ("NAME", "SCOPE", "MODELS", "BEGINS WITH", "CREATED (UTC)", "BY", "ID", "STATE"),
        [
            (
                key["name"],
                key["scope"],
                _shown(key["models"]),
                key["hint"] + "...",
                show_time(key["created_at"]),
                key["created_by"],
                key["id"],
                f"revoked {show_time(key['revoked_at'])}" if key["revoked_at"] else "valid",
            )
            for key in keys
        ],
    )


@keys_group.command("models")
@client_command
@click.argument("key")
@click.argument("models", required=False)
@click.option("--all", "all_models", is_flag=True, help="Let it use every model.")
def change_models(api: Api, key: str, models: str | None, all_models: bool) -> None:
    """Say which models a key may use, separated by commas. Takes effect everywhere within five seconds."""
    if all_models == (models is not None):
        raise InvalidInput("name the models, separated by commas, or give --all")
    changed = api.call("PUT", "api", "keys", key, "models", body={"models": _names(models)})
    if api.as_json:
        print_json(changed)
    else:
        click.echo(f"{changed['name']} may use: {_shown(changed['models'])}")


@keys_group.command("revoke")
@client_command
@click.argument("key")
def revoke_key(api: Api, key: str) -> None:
    """Make a key worthless, by its name or id.

    At once on the frontend asked, everywhere within five seconds."""
    revoked = api.call("DELETE", "api", "keys", key)
    if api.as_json:
        print_json(revoked)
    else:
        click.echo(f"revoked {revoked['name']} ({revoked['id']})")
