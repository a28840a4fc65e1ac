"""`corral status`: the fleet in a few lines."""

import click

from corral.cli.client import Api, client_command, print_json


@click.command("status")
@client_command
def status_command(api: Api) -> None:
    """How the fleet is."""
    status = api.call("GET", "api", "status")
    if api.as_json:
        print_json(status)
        return
    counts = {name: count for name, count in status["nodes"].items() if count}
    nodes = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none yet"
    bus = status["bus"]
    click.echo(f"corral     {status['version']} at {api.url}")
    click.echo(f"nodes      {nodes}")
    click.echo(f"frontends  {len(status['frontends'])}: " + ", ".join(row["url"] for row in status["frontends"]))
    click.echo(f"store      {status['store']['kind']} {status['store']['location']}")
    click.echo(f"bus        {bus['url']} {'connected' if bus['connected'] else 'NOT CONNECTED: ' + bus['problem']}")
    if counts.get("pending"):
        click.echo("\nMachines wait for approval: corral nodes list, then corral nodes approve NAME")
