"""`corral bus`: keys and configuration for a message bus of your own."""

from pathlib import Path

import click

from corral.bus.embedded import prepare_bus
from corral.system import SystemClock, SystemIds


@click.group("bus")
def bus_group() -> None:
    """Set up a nats-server of your own."""


@bus_group.command("init")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--host", default="0.0.0.0", show_default=True, help="Interface the bus listens on.")
@click.option("--port", default=4222, show_default=True, type=click.IntRange(1, 65535))
def init_bus(directory: Path, host: str, port: int) -> None:
    """Make keys and a nats-server configuration in DIRECTORY. Run again, the keys stay."""
    files = prepare_bus(directory.absolute(), host=host, port=port, clock=SystemClock(), ids=SystemIds())
    click.echo(f"Start the bus:      nats-server -c {files.config}")
    click.echo("Tell each frontend (keep these files secret):")
    click.echo(f"  CORRAL_BUS=nats://THIS-HOST:{port}")
    click.echo(f"  CORRAL_BUS_ACCOUNT_SEED_FILE={files.account_seed}")
    click.echo(f"  CORRAL_BUS_OPERATOR_SEED_FILE={files.operator_seed}")
    click.echo(f"  CORRAL_BUS_SYSTEM_SEED_FILE={files.system_seed}")
