"""`corral join-command`: the command that adds a node."""

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json
from corral.cli.program_name import program_name


@click.command("join-command")
@client_command
def join_command(api: Api) -> None:
    """Print the command that adds a node.

    Run it on the machine to add. To keep the token out of the argument list, omit --token and set CORRAL_JOIN_TOKEN
    there, or write the token to a file and pass --token-file PATH."""
    join = api.call("GET", "api", "join-command")
    if api.as_json:
        print_json(join)
    else:
        click.echo(f"{program_name()} worker --join {join['url']} --token {join['token']}")
