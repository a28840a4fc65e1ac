"""`corral status`: the fleet in a few lines."""

from dataclasses import asdict, dataclass
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import clean, print_json
from corral.cli.display.replicas import Running, is_as_wanted, read_running
from corral.cli.program_name import command


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounts:
    configured: int
    served: int
    replicas: int
    held_up: list[str]
    """Models with fewer replicas than wanted, or with a load that waits for room or failed."""


def _count_models(api: Api, running: dict[str, Running]) -> ModelCounts:
    served = [one for one in running.values() if one["ready"]]
    return ModelCounts(
        configured=sum(not model["alias_of"] for model in api.call("GET", "api", "models")),
        served=len(served),
        replicas=sum(one["ready"] for one in served),
        held_up=[name for name, one in running.items() if not is_as_wanted(one)],
    )


def _count_failed(api: Api) -> int:
    rows: list[dict[str, Any]] = api.call("GET", "api", "operations")["operations"]
    return sum(row["state"] == "failed" or bool(row.get("error")) for row in rows)


def _several(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


@click.command("status")
@client_command
def status_command(api: Api) -> None:
    """How the fleet is."""
    status = api.call("GET", "api", "status")
    models, failed = _count_models(api, read_running(api)), _count_failed(api)
    if api.as_json:
        print_json({**status, "models": asdict(models), "operations": {"failed": failed}})
        return
    counts = {name: count for name, count in status["nodes"].items() if count}
    nodes = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none yet"
    bus, store = status["bus"], status["store"]
    click.echo(f"corral     {status['version']} at {api.url}")
    click.echo(f"nodes      {nodes}")
    click.echo(f"models     {_describe(models)}")
    click.echo(f"frontends  {len(status['frontends'])}: " + ", ".join(row["url"] for row in status["frontends"]))
    refuses = "" if store["ok"] else f" TAKES NO CHANGES: {clean(store['problem'])}"
    click.echo(f"store      {store['kind']} {store['location']}{refuses}")
    click.echo(f"bus        {bus['url']} {'connected' if bus['connected'] else 'NOT CONNECTED: ' + bus['problem']}")
    if failed:
        click.echo(f"\n{_several(failed, 'operation', 'operations')} failed: {command('ops list')}")
    if models.held_up:
        click.echo(f"\nWhy a model does not run as wanted: {command(f'why model {clean(models.held_up[0])}')}")
    for name in map(clean, status.get("claimed", ())):
        click.echo(f"\nAnother machine claims to be {name} and waits for an answer: {command(f'nodes show {name}')}")
    if counts.get("pending"):
        click.echo(f"\nMachines wait for approval: {command('nodes list')}, then {command('nodes approve NAME')}")


def _describe(models: ModelCounts) -> str:
    told = f"{models.configured} configured, {models.served} served"
    if models.served:
        told += f" by {_several(models.replicas, 'replica', 'replicas')}"
    return told + (f", {len(models.held_up)} not as wanted" if models.held_up else "")
