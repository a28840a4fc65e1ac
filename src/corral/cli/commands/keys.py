"""`corral keys`: API keys."""

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json, print_table, show_time
from corral.core.errors import InvalidInput


@click.group("keys")
def keys_group() -> None:
    """Create, list and revoke API keys."""


def _names(models: str | None) -> list[str] | None:
    return None if models is None else [name.strip() for name in models.split(",") if name.strip()]


def _shown(models: list[str] | None) -> str:
    return "all" if models is None else ",".join(models) or "none"


@keys_group.command("create")
@client_command
@click.option("--name", required=True, help="Who or what the key is for.")
@click.option("--scope", type=click.Choice(["admin", "user"]), default="user", show_default=True,
              help="`user` may use models; `admin` may also change the cluster.")  # fmt: skip
@click.option("--models", default=None, help="Comma-separated models that the key may use. Default: all.")
def create_key(api: Api, name: str, scope: str, models: str | None) -> None:
    """Create a key. It is shown only once; Corral stores its hash."""
    key = api.call("POST", "api", "keys", body={"name": name, "scope": scope, "models": _names(models)})
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
        ("NAME", "SCOPE", "MODELS", "PREFIX", "CREATED (UTC)", "CREATED BY", "ID", "STATE"),
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
@click.option("--all", "all_models", is_flag=True, help="Allow all models.")
def change_models(api: Api, key: str, models: str | None, all_models: bool) -> None:
    """Set the models that a key may use.

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
