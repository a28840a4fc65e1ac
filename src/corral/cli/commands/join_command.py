"""`corral join-command`: the command that adds a node."""

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json
from corral.cli.program_name import program_name


@click.command("join-command")
@click.option("--localai", is_flag=True, help="For a machine that runs a LocalAI worker.")
@client_command
def join_command(api: Api, localai: bool) -> None:
    """Print the command that adds a node.

    Run it on the machine to add. To keep the token out of the argument list, omit --token and set CORRAL_JOIN_TOKEN
    there, or write the token to a file and pass --token-file PATH. For a LocalAI worker, the variable is
    LOCALAI_REGISTRATION_TOKEN."""
    join = api.call("GET", "api", "join-command")
    if api.as_json:
        print_json(join)
    elif localai:
        click.echo(join["localai_command"])
    else:
        click.echo(f"{program_name()} worker --join {join['url']} --token {join['token']}")
