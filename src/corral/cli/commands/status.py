"""`corral status`: the cluster in a few lines."""

from dataclasses import asdict, dataclass
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import clean, print_fields, print_json
from corral.cli.display.replicas import Running, is_as_desired, read_running
from corral.cli.program_name import command


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounts:
    configured: int
    served: int
    replicas: int
    held_up: list[str]
    """Models below their desired replicas, or with a load that failed or waits for capacity."""


def _count_models(api: Api, running: dict[str, Running]) -> ModelCounts:
    served = [one for one in running.values() if one["ready"]]
    return ModelCounts(
        configured=sum(not model["alias_of"] for model in api.call("GET", "api", "models")),
        served=len(served),
        replicas=sum(one["ready"] for one in served),
        held_up=[name for name, one in running.items() if not is_as_desired(one)],
    )


def _count_failed(api: Api) -> int:
    rows: list[dict[str, Any]] = api.call("GET", "api", "operations")["operations"]
    return sum(row["state"] == "failed" or bool(row.get("error")) for row in rows)


def _read_open_rollouts(api: Api) -> list[dict[str, Any]]:
    """Those with waves: an upgrade of all nodes at once is an operation like any other."""
    rows: list[dict[str, Any]] = api.call("GET", "api", "rollouts")["rollouts"]
    fields = ("id", "backend", "state", "summary", "is_overdue")
    return [
        {field: row[field] for field in fields} for row in rows if row["ended_at"] is None and row["strategy"] != "all"
    ]


def _several(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


@click.command("status")
@client_command
def status_command(api: Api) -> None:
    """Show cluster status."""
    status = api.call("GET", "api", "status")
    models, failed, rollouts = _count_models(api, read_running(api)), _count_failed(api), _read_open_rollouts(api)
    if api.as_json:
        print_json({**status, "models": asdict(models), "operations": {"failed": failed}, "rollouts": rollouts})
        return
    counts = {name: count for name, count in status["nodes"].items() if count}
    nodes = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none yet"
    bus, store = status["bus"], status["store"]
    read_only = "" if store["ok"] else f" READ-ONLY: {store['problem']}"
    print_fields(
        (
            ("CORRAL", f"{status['version']} at {api.url}"),
            ("NODES", nodes),
            ("MODELS", _describe(models)),
            ("FRONTENDS", f"{len(status['frontends'])}: " + ", ".join(row["url"] for row in status["frontends"])),
            ("STORE", f"{store['kind']} {store['location']}{read_only}"),
            ("BUS", f"{bus['url']} {'connected' if bus['connected'] else 'NOT CONNECTED: ' + bus['problem']}"),
        )
    )
    if failed:
        click.echo(f"\n{_several(failed, 'operation', 'operations')} failed: {command('ops list')}")
    for rollout in rollouts:
        about = f"{clean(rollout['backend'])}: {clean(rollout['summary'])}"
        click.echo(f"\nRollout of {about}: {command('rollouts show ' + rollout['id'][:8])}")
    if models.held_up:
        model = clean(models.held_up[0])
        click.echo(f"\n{model} does not have its desired replicas: {command(f'why model {model}')}")
    for name in map(clean, status.get("claimed", ())):
        click.echo(f"\nAnother machine claims to be node {name}: {command(f'nodes show {name}')}")
    if pending := counts.get("pending"):
        wait = _several(pending, "node waits", "nodes wait")
        click.echo(f"\n{wait} for approval: {command('nodes list')}, then {command('nodes approve NAME')}")


def _describe(models: ModelCounts) -> str:
    text = f"{models.configured} configured, {models.served} served"
    if models.served:
        text += f" by {_several(models.replicas, 'replica', 'replicas')}"
    return text + (f", {len(models.held_up)} below desired replicas" if models.held_up else "")
