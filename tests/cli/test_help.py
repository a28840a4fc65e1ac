"""The list of commands, shown without importing them."""

import subprocess
import sys
from importlib import import_module

import pytest
from click.testing import CliRunner

from corral.cli.main import COMMANDS, cli, short_help

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
def test_a_summary_is_the_first_sentence_of_the_command_s_help(name: str) -> None:
    module, function = COMMANDS[name]
    command = getattr(import_module(module), function)
    assert short_help(module, function, 60) == command.get_short_help_str(60) != ""


def test_no_summary_is_cut_on_a_terminal_of_80_columns() -> None:
    groups = [name for name, (_, function) in COMMANDS.items() if function.endswith("_group")]
    for words in ([], *([group] for group in groups)):
        shown = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).output
        assert [line for line in shown.splitlines() if line.startswith("  ") and line.endswith("...")] == []


def test_listing_the_commands_imports_none_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"), [("statsu", "status"), ("node", "nodes"), ("help", "--help"), ("version", "--version")]
)
def test_an_unknown_command_is_answered_with_the_most_similar_one(typed: str, meant: str) -> None:
    refused = CliRunner().invoke(cli, [typed])
    assert refused.exit_code == 2
    assert f"Did you mean {meant!r}" in refused.output


def test_an_unknown_command_similar_to_none_is_rejected() -> None:
    refused = CliRunner().invoke(cli, ["xyzzy"])
    assert (refused.exit_code, "No such command 'xyzzy'." in refused.output) == (2, True)
