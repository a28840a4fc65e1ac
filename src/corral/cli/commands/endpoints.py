"""`corral models attach` and `detach`: servers that already run."""

from pathlib import Path
from typing import Any

import click

from corral.cli.client.api import Api, client_command, client_command_with_own_url
from corral.cli.display.output import clean, print_json, print_table
from corral.cli.program_name import command
from corral.core.errors import InvalidInput, NotFound
from corral.core.replicas.routing import CONTINUATIONS
from corral.system import SystemDisk

ATTACH_WITHIN_S = 60.0


@click.command("attach")
@client_command_with_own_url
@click.argument("model")
@click.option("--url", required=True, help="Base of the server's API, such as http://10.0.0.5:8000/v1.")
@click.option("--upstream-model", default=None, metavar="NAME", help="The model's name there, if it differs.")
@click.option("--api-key-file", default=None, metavar="FILE", help="File with the key that the server requires.")
@click.option(
    "--protocol",
    type=click.Choice(["openai", "ollama", "anthropic"]),
    default=None,
    help="The API that the server speaks. Default: openai.",
)
@click.option(
    "--endpoints",
    default=None,
    metavar="PATHS",
    help="Paths that it has itself, such as /v1/messages,/v1/responses. Others are translated.",
)
@click.option(
    "--continuation",
    type=click.Choice([*CONTINUATIONS, ""]),
    default=None,
    help="How it continues an answer that another server began.",
)
@click.option("--limit", type=click.IntRange(1), default=None, help="Most open requests. Default: 32.")
@click.option("--weight", type=click.IntRange(1), default=None, help="Share of the requests. Default: 1.")
@click.option("--ca-file", default=None, metavar="FILE", help="CA of the server's certificate (PEM).")
@click.option("--pin", default=None, metavar="SHA256", help="Fingerprint of the server's certificate.")
def attach_endpoint(
    api: Api,
    model: str,
    url: str,
    upstream_model: str | None,
    api_key_file: str | None,
    protocol: str | None,
    endpoints: str | None,
    continuation: str | None,
    limit: int | None,
    weight: int | None,
    ca_file: str | None,
    pin: str | None,
) -> None:
    """Attach a server that already runs to a model.

    It serves the model as a replica does, but Corral neither starts nor stops it. A model that does not exist is
    added. Repeat the command for further servers; the same URL again changes the settings that are
    given; an empty value ('') clears one."""
    given: dict[str, Any] = {
        "url": url,
        "upstream_model": upstream_model,
        "protocol": protocol,
        "endpoints": None if endpoints is None else endpoints.replace(",", " ").split(),
        "continuation": continuation,
        "limit": limit,
        "weight": weight,
        "ca_pem": _read_file(ca_file),
        "pin": pin,
        "api_key": _read_file(api_key_file),
    }
    body = {name: value for name, value in given.items() if value is not None}
    answer = api.call("POST", "api", "models", model, "endpoints", body=body, within_s=ATTACH_WITHIN_S)
    if api.as_json:
        print_json(answer)
        return
    done = "attached" if answer["is_new"] else "changed"
    click.echo(f"{clean(answer['model'])}: {done} {clean(answer['url'])} ({answer['health']})")
    if answer["reason"]:
        click.echo(f"It gets no requests yet: {clean(answer['reason'])}. Corral keeps probing it.", err=True)
    for warning in answer["warnings"]:
        click.echo(f"Warning: {clean(warning)}", err=True)


@click.command("detach")
@client_command
@click.argument("model")
@click.argument("endpoint", required=False, default="")
def detach_endpoint(api: Api, model: str, endpoint: str) -> None:
    """Detach a server from a model; its open requests are finished.

    ENDPOINT is its URL or id. It may be left out if the model has only one."""
    found = [one for one in api.call("GET", "api", "models", model, "endpoints") if one["state"] == "attached"]
    one = _find(model, found, endpoint)
    answer = api.call("DELETE", "api", "models", one["model"], "endpoints", one["id"])
    if api.as_json:
        print_json(answer)
        return
    click.echo(f"{clean(answer['model'])}: detached {clean(answer['url'])}")
    if len(found) == 1 and api.call("GET", "api", "models", model)["backend"] == "attached":
        click.echo(f"No endpoint serves it now. Delete it with `{command(f'models delete {clean(model)}')}`.")


def _find(model: str, found: list[dict[str, Any]], given: str) -> dict[str, Any]:
    if not found:
        raise NotFound(f"{model} has no attached endpoint")
    if not given and len(found) > 1:
        raise InvalidInput(f"{model} has {len(found)} endpoints; name one: {', '.join(one['url'] for one in found)}")
    wanted = given.rstrip("/")
    named = [one for one in found if not given or wanted in (one["id"], one["url"], one["url"].removesuffix("/v1"))]
    if not named:
        named = [one for one in found if len(given) >= 4 and one["id"].startswith(given)]
    if not named:
        raise NotFound(f"{model} has no endpoint {given!r}; it has {', '.join(one['url'] for one in found)}")
    if len(named) > 1:
        raise InvalidInput(f"{given!r} fits several endpoints; give an id: {', '.join(one['id'] for one in named)}")
    return named[0]


@click.command("endpoints")
@client_command
@click.argument("model", required=False, default="")
def list_endpoints(api: Api, model: str) -> None:
    """List attached endpoints; with MODEL, only those of it."""
    path = ("models", model, "endpoints") if model else ("endpoints",)
    found = api.call("GET", "api", *path)
    if api.as_json:
        print_json(found)
        return
    if not found:
        click.echo(f"No attached endpoints. Attach one: {command('models attach NAME --url http://HOST:8000/v1')}")
        return
    print_table(
        ("MODEL", "URL", "UPSTREAM MODEL", "PROTOCOL", "HEALTH", "OPEN", "LIMIT", "WEIGHT", "KEY", "ID", "NOTE"),
        [
            (
                one["model"],
                one["url"],
                one["upstream_model"] or "-",
                one["protocol"],
                one["health"] if one["state"] == "attached" else one["state"],
                str(one["in_flight"]),
                str(one["limit"]),
                str(one["weight"]),
                "yes" if one["has_key"] else "-",
                one["id"][:8],
                one["reason"],
            )
            for one in found
        ],
    )


def _read_file(name: str | None) -> str | None:
    """Without white space around it. An empty name stands for nothing, which is no file."""
    if not name:
        return name
    try:
        content = SystemDisk().read(Path(name))
    except OSError as error:
        raise InvalidInput(f"cannot read {name}: {error.strerror}") from error
    if content is None:
        raise InvalidInput(f"no such file: {name}")
    return content.decode("utf-8", "replace").strip()
