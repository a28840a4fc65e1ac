"""The list of commands, shown without importing them."""

import subprocess
import sys
from importlib import import_module

import pytest

from corral.cli.main import COMMANDS, short_help

LIST = """
import sys
from click.testing import CliRunner
from corral.cli.main import COMMANDS, cli
shown = CliRunner().invoke(cli, ["--help"])
assert shown.exit_code == 0, shown.output
assert all(f"  {name} " in shown.output for name in COMMANDS), shown.output
print(*sorted({module for module, _ in COMMANDS.values()} & sys.modules.keys()))
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_what_the_command_says_of_itself(name: str) -> None:
    module, function = COMMANDS[name]
    command = getattr(import_module(module), function)
    assert short_help(module, function, 60) == command.get_short_help_str(60) != ""


def test_no_command_is_imported_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr
