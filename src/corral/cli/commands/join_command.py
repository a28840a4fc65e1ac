"""`corral join-command`: what to run on another machine to add it."""

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import print_json
from corral.cli.program_name import program_name


@click.command("join-command")
@client_command
def join_command(api: Api) -> None:
    """Print the command that adds a machine.

    The token in it need not be in an argument list: leave out --token and set CORRAL_JOIN_TOKEN there, or put the token
    into a file and give --token-file PATH."""
    join = api.call("GET", "api", "join-command")
    if api.as_json:
        print_json(join)
    else:
        click.echo(f"{program_name()} worker --join {join['url']} --token {join['token']}")
