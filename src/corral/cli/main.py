"""The command line. A command's module is imported only when the command is used, so that every command starts fast."""

import ast
import difflib
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import find_spec

import click

from corral import __version__
from corral.cli.program_name import as_called, program_name
from corral.core.errors import CorralError, InvalidInput, Unavailable
from corral.system.http_client import Declined
from corral.system.interrupts import EXIT_INTERRUPTED, hear_interrupts, ignore_interrupts

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("corral.cli.commands.up", "up_command"),
    "demo": ("corral.cli.commands.demo", "demo_command"),
    "frontend": ("corral.cli.commands.frontend", "frontend_command"),
    "worker": ("corral.cli.commands.worker", "worker_command"),
    "status": ("corral.cli.commands.status", "status_command"),
    "nodes": ("corral.cli.commands.nodes", "nodes_group"),
    "backends": ("corral.cli.commands.backends", "backends_group"),
    "models": ("corral.cli.commands.models", "models_group"),
    "routes": ("corral.cli.commands.routes", "routes_group"),
    "ops": ("corral.cli.commands.ops", "ops_group"),
    "rollouts": ("corral.cli.commands.rollouts", "rollouts_group"),
    "chat": ("corral.cli.commands.chat", "chat_command"),
    "keys": ("corral.cli.commands.keys", "keys_group"),
    "usage": ("corral.cli.commands.usage", "usage_command"),
    "audit": ("corral.cli.commands.audit", "audit_command"),
    "why": ("corral.cli.commands.why", "why_group"),
    "join-command": ("corral.cli.commands.join_command", "join_command"),
    "doctor": ("corral.cli.commands.doctor", "doctor_command"),
    "bus": ("corral.cli.commands.bus", "bus_group"),
    "artifacts": ("corral.cli.commands.artifacts", "artifacts_group"),
}

INSTEAD = {"help": "--help", "version": "--version"}
"""Options that users may look for as commands."""

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_UNREACHABLE = 1, 2, 3


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        with _lean():
            command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        near = [INSTEAD[name]] if name in INSTEAD else difflib.get_close_matches(name, COMMANDS, n=3)
        if near and name not in COMMANDS:
            raise click.UsageError(f"No such command {name!r}. Did you mean {' or '.join(map(repr, near))}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        width = formatter.width - 6 - widest
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help(*place, width)) for name, place in COMMANDS.items()])


@contextmanager
def _lean() -> Iterator[None]:
    """Makes imports about 10 % faster: the garbage collector is off, and structlog does not find what it would load if
    it were there: `rich`, for tracebacks that we print without it, and `greenlet`, which we do not use. Modules that
    draw with `rich` import it later."""
    hidden = [name for name in ("rich", "greenlet") if name not in sys.modules]
    gc.disable()
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.enable()


def short_help(module: str, function: str, width: int) -> str:
    """The first sentence of a command's docstring, read without importing the command and its dependencies."""
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec is not None and isinstance(spec.loader, SourceLoader) else None
    for node in ast.parse(source or "").body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return click.Command(function, help=ast.get_docstring(node)).get_short_help_str(width)
    return ""


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="corral")
def cli() -> None:
    """Run AI models on a fleet of heterogeneous machines behind one OpenAI-compatible address."""


def _first_of_ours(error: BaseException) -> CorralError | None:
    if isinstance(error, CorralError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for part in error.exceptions if (found := _first_of_ours(part))), None)
    return None


def main() -> None:
    sys.exit(_run_quietly())


def _run_quietly() -> int:
    """Runs the command. Ctrl-C ends it with an exit code and without a traceback, however often it is pressed."""
    try:
        hear_interrupts()
        try:
            return _run()
        finally:
            ignore_interrupts()
    except KeyboardInterrupt:
        ignore_interrupts()
        return EXIT_INTERRUPTED


def _run() -> int:
    try:
        # A command's own exit code comes back as its result; commands themselves return nothing.
        code = cli.main(prog_name=program_name(), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe (`corral nodes list | head`).
        sys.stderr.close()
        return 0
    except (CorralError, BaseExceptionGroup) as error:
        ours = _first_of_ours(error)
        if ours is None:
            raise
        click.echo(f"corral: {as_called(str(ours))}", err=True)
        return exit_code(ours)


def exit_code(error: CorralError) -> int:
    if isinstance(error, InvalidInput):
        return EXIT_BAD_INPUT
    if isinstance(error, Declined):
        return EXIT_FAILED
    return EXIT_UNREACHABLE if isinstance(error, Unavailable) else EXIT_FAILED
