"""`corral bus`: keys and configuration for a message bus of your own."""

from pathlib import Path

import click

from corral.bus.embedded import prepare_bus
from corral.cli.display.output import print_json
from corral.system import SystemClock, SystemDisk, SystemIds
from corral.system.children import find_program


@click.group("bus")
def bus_group() -> None:
    """Set up a nats-server of your own."""


@bus_group.command("init")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--host", default="0.0.0.0", show_default=True, help="Interface the bus listens on.")
@click.option("--port", default=4222, show_default=True, type=click.IntRange(1, 65535))
@click.option("--json", "as_json", is_flag=True, help="Print command and settings as JSON.")
def init_bus(directory: Path, host: str, port: int, as_json: bool) -> None:
    """Make keys and a nats-server configuration in DIRECTORY. Run again, the keys stay."""
    files = prepare_bus(
        directory.absolute(), host=host, port=port, clock=SystemClock(), ids=SystemIds(), disk=SystemDisk()
    )
    told = {
        "CORRAL_BUS": f"nats://THIS-HOST:{port}",
        "CORRAL_BUS_ACCOUNT_SEED_FILE": str(files.account_seed),
        "CORRAL_BUS_OPERATOR_SEED_FILE": str(files.operator_seed),
        "CORRAL_BUS_SYSTEM_SEED_FILE": str(files.system_seed),
    }
    command = f"{find_program('nats-server') or 'nats-server'} -c {files.config}"
    if as_json:
        print_json({"command": command, "environment": told})
        return
    click.echo(f"Start the bus:      {command}")
    click.echo("Tell each frontend (keep these files secret):")
    for name, value in told.items():
        click.echo(f"  {name}={value}")
