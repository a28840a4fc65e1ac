"""`corral bus`: keys and configuration for your own message bus."""

from pathlib import Path

import click

from corral.bus.embedded import prepare_bus
from corral.cli.display.output import print_json
from corral.system import SystemClock, SystemDisk, SystemIds
from corral.system.children import find_program


@click.group("bus")
def bus_group() -> None:
    """Set up your own nats-server."""


@bus_group.command("init")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--host", default="0.0.0.0", show_default=True, help="Address the bus listens on.")
@click.option("--port", default=4222, show_default=True, type=click.IntRange(1, 65535), help="Port of the bus.")
@click.option("--json", "as_json", is_flag=True, help="Print the command and the settings as JSON.")
def init_bus(directory: Path, host: str, port: int, as_json: bool) -> None:
    """Create keys and a nats-server configuration in DIRECTORY. Existing keys are kept."""
    files = prepare_bus(
        directory.absolute(), host=host, port=port, clock=SystemClock(), ids=SystemIds(), disk=SystemDisk()
    )
    environment = {
        "CORRAL_BUS": f"nats://THIS-HOST:{port}",
        "CORRAL_BUS_ACCOUNT_SEED_FILE": str(files.account_seed),
        "CORRAL_BUS_OPERATOR_SEED_FILE": str(files.operator_seed),
        "CORRAL_BUS_SYSTEM_SEED_FILE": str(files.system_seed),
    }
    command = f"{find_program('nats-server') or 'nats-server'} -c {files.config}"
    if as_json:
        print_json({"command": command, "environment": environment})
        return
    click.echo(f"Start the bus: {command}")
    click.echo("Set on each frontend (keep these files secret):")
    for name, value in environment.items():
        click.echo(f"  {name}={value}")
