"""`corral chat`: chat with a model."""

import difflib
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.client.conversation import Answered, Loading, Message, ask, ask_when_loaded
from corral.cli.display.output import clean, print_json
from corral.cli.display.replicas import loading_line
from corral.cli.program_name import command
from corral.core.errors import CorralError, InvalidInput, NotFound
from corral.system import Clock, SystemClock
from corral.system.interrupts import EXIT_INTERRUPTED, hear_next_interrupt

DEMO_MODEL = "smollm2"
LEAVE = ("/exit", "/quit", "/bye")
LOOK_WITHIN_S = 10.0
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


@click.command("chat")
@client_command
@click.argument("model", required=False)
@click.argument("question", nargs=-1)
@click.option("--system", default="", help="System prompt.")
@click.option("--max-tokens", type=click.IntRange(1), default=None, help="Maximum length of an answer, in tokens.")
@click.option("--temperature", type=click.FloatRange(0, 5), default=None, help="Sampling temperature.")
@click.option("--wait", "wait_s", type=click.FloatRange(0), default=600.0, show_default=True, metavar="SECONDS",
              help="Maximum waiting time for a model that is loading.")  # fmt: skip
@click.option("--verbose", "-v", is_flag=True, help="After each answer, show tokens, speed and the node.")
def chat_command(
    api: Api,
    model: str | None,
    question: tuple[str, ...],
    system: str,
    max_tokens: int | None,
    temperature: float | None,
    wait_s: float,
    verbose: bool,
) -> None:
    """Chat with a model.

    With a QUESTION, or with text on standard input, prints one answer and exits. Otherwise starts a conversation:
    Ctrl-C stops an answer, Ctrl-D or /exit ends the conversation. MODEL may be omitted if there is only one."""
    asked = " ".join(question) or _read_input()
    if asked is not None and not asked.strip():
        raise InvalidInput("the question is empty; give it after the model's name or on standard input")
    options = {"max_tokens": max_tokens, "temperature": temperature}
    chat = Chat(
        api=api,
        clock=SystemClock(),
        model=model or _choose_model(api),
        options={name: value for name, value in options.items() if value is not None},
        wait_s=wait_s,
        verbose=verbose,
        messages=[{"role": "system", "content": system}] if system else [],
    )
    if asked is not None:
        chat.answer_once(asked)
    else:
        chat.converse()


def _read_input() -> str | None:
    """The text on standard input; None when that is a terminal."""
    return None if sys.stdin.isatty() else sys.stdin.read()


def _choose_model(api: Api) -> str:
    names = _list_models(api)
    if len(names) == 1:
        return names[0]
    if names:
        listed = ", ".join(clean(name) for name in names)
        raise InvalidInput(f"choose a model: {listed}. For example: {command(f'chat {names[0]}')}")
    if not sys.stdin.isatty():
        raise NotFound(f"no model is installed; to install a small one: {command(f'models install {DEMO_MODEL}')}")
    click.confirm(
        f"No model is installed. Install {DEMO_MODEL} (90 MiB, runs on any machine)?", default=True, abort=True
    )
    api.call("POST", "api", "models", "install", body={"name": DEMO_MODEL})
    return DEMO_MODEL


def _list_models(api: Api) -> list[str]:
    return [str(model["id"]) for model in api.call("GET", "v1", "models")["data"]]


def visible(text: str) -> str:
    """A model's text without characters that control the terminal."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


@dataclass(slots=True, kw_only=True)
class Chat:
    api: Api
    clock: Clock
    model: str
    options: dict[str, Any]
    wait_s: float
    verbose: bool
    messages: list[Message] = field(default_factory=list)
    _thinking: bool = False
    _printed: str = ""

    def answer_once(self, question: str) -> None:
        answered = self._ask(question)
        if self.api.as_json:
            print_json(
                {
                    "model": self.model,
                    "answer": answered.text,
                    "reasoning": answered.reasoning,
                    "finish_reason": answered.finish_reason,
                    "usage": answered.usage,
                    "node": answered.node,
                    "tokens_per_second": answered.tokens_per_s,
                }
            )
        if answered.stopped:
            raise click.exceptions.Exit(EXIT_INTERRUPTED)

    def converse(self) -> None:
        self._check_model()
        click.echo(
            f"Chatting with {clean(self.model)}. Ctrl-C stops an answer, /exit or Ctrl-D ends the chat.",
            err=True,
        )
        _prepare_line_editing()
        while True:
            try:
                while self._turn():
                    pass
                return
            except KeyboardInterrupt:
                click.echo("\nCtrl-D or /exit ends the conversation.", err=True)

    def _check_model(self) -> None:
        """Raises when there is no such model, before the user types a long question. Some servers list no models."""
        names = [self.model]
        with suppress(NotFound):
            names = _list_models(self.api)
        if self.model not in names:
            near = difflib.get_close_matches(self.model, names, n=3)
            hint = (
                f"Did you mean {' or '.join(near)}?" if near else f"`{command('models list')}` lists available models."
            )
            raise self._not_found(NotFound(f"no model {self.model!r}, or this key may not use it. {hint}"))

    def _not_found(self, error: NotFound) -> NotFound:
        """The error, or how to install the model when a gallery has it."""
        query = [("term", self.model), ("limit", "50")]
        with suppress(CorralError):
            found = self.api.call("GET", "api", "models", "available", query=query, within_s=LOOK_WITHIN_S)
            if any(model["name"] == self.model and not model["installed"] for model in found["models"]):
                install = command(f"models install {self.model}")
                return NotFound(f"the model {self.model!r} is not installed, but a gallery has it: {install}")
        return error

    def _turn(self) -> bool:
        """Reads and answers one question; returns whether the conversation continues. An error is printed, and the
        question is not added to the conversation."""
        hear_next_interrupt()
        try:
            question = input("> ")
        except EOFError:
            click.echo("", err=True)
            return False
        if question.strip() in LEAVE:
            return False
        try:
            if question.strip():
                self._ask(question)
        except CorralError as error:
            click.echo(f"corral: {clean(str(error))}", err=True)
        return True

    def _ask(self, question: str) -> Answered:
        asked: list[Message] = [*self.messages, {"role": "user", "content": question}]
        body = {
            "model": self.model,
            "messages": asked,
            "stream_options": {"include_usage": True},
            **self.options,
        }
        try:
            answered = ask_when_loaded(
                lambda left_s: ask(
                    self.api,
                    self.clock,
                    body,
                    on_text=self._print_text,
                    on_reasoning=self._print_reasoning,
                    load_wait_s=left_s,
                ),
                self.clock,
                within_s=self.wait_s,
                on_loading=self._print_loading,
            )
        except NotFound as error:
            raise self._not_found(error) from error
        self._end_line(answered)
        self.messages = [*asked, {"role": "assistant", "content": answered.text}]
        return answered

    def _print_text(self, text: str) -> None:
        if self._thinking:
            self._thinking = False
            self._write(PLAIN + "\n" if sys.stdout.isatty() else "\n")
        self._write(visible(text))

    def _print_reasoning(self, text: str) -> None:
        if not self._thinking:
            self._thinking = True
            self._write(DIM if sys.stdout.isatty() else "")
        self._write(visible(text))

    def _write(self, text: str) -> None:
        if not self.api.as_json:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _end_line(self, answered: Answered) -> None:
        if self._thinking and sys.stdout.isatty():
            self._write(PLAIN)
        self._thinking = False
        self._write("\n")
        if answered.stopped:
            click.echo("(stopped)", err=True)
        if self.verbose:
            click.echo(f"({', '.join([*_facts(answered), self._node(answered)])})", err=True)

    def _node(self, answered: Answered) -> str:
        """The node that answered. Where the answer does not name it, an admin key can look it up."""
        if answered.node:
            return f"from {clean(answered.node)}"
        try:
            replicas = self.api.call("GET", "api", "replicas")
            names = {node["id"]: node["name"] for node in self.api.call("GET", "api", "nodes")}
        except CorralError:
            return "node unknown"
        serving = {
            names.get(replica["node_id"], replica["node_id"])
            for replica in replicas
            if replica["model_name"] == self.model and replica["corral_state"] == "ready"
        }
        listed = ", ".join(clean(name) for name in sorted(serving))
        return f"from {'one of ' if len(serving) > 1 else ''}{listed}" if serving else "node unknown"

    def _print_loading(self, loading: Loading) -> None:
        line = loading_line(self.model, loading.what)
        if line != self._printed:
            click.echo(line, err=True)
            self._printed = line


def _facts(answered: Answered) -> Sequence[str]:
    usage = answered.usage
    facts = []
    if usage:
        facts.append(f"{usage.get('prompt_tokens', 0)} tokens in, {usage.get('completion_tokens', 0)} out")
    if answered.tokens_per_s is not None:
        facts.append(f"{answered.tokens_per_s:.1f} tokens/s")
    if answered.first_after_s is not None:
        facts.append(f"first token after {answered.first_after_s:.2f} s")
    return facts


def _prepare_line_editing() -> None:
    """Enables arrow keys and history at the prompt, where the readline library is installed."""
    try:
        import readline  # noqa: F401
    except ImportError:
        return
