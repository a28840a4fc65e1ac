"""`corral chat`: talk to a model."""

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
@click.option("--system", default="", help="What the model is told first.")
@click.option("--max-tokens", type=click.IntRange(1), default=None, help="Longest answer.")
@click.option("--temperature", type=click.FloatRange(0, 5), default=None)
@click.option("--wait", "wait_s", type=click.FloatRange(0), default=600.0, show_default=True, metavar="SECONDS",
              help="How long to wait for a model that is being loaded.")  # fmt: skip
@click.option("--verbose", "-v", is_flag=True, help="After each answer: tokens, speed, and the machine it came from.")
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
    """Talk to MODEL. With a QUESTION, or text on the input, it answers once; else it is a conversation.

    Ctrl-C stops an answer; Ctrl-D or /exit ends the conversation."""
    asked = " ".join(question) or _read_input()
    if asked is not None and not asked.strip():
        raise InvalidInput("there is no question; write it after the model's name, or into the input")
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
    """None when a person sits there."""
    return None if sys.stdin.isatty() else sys.stdin.read()


def _choose_model(api: Api) -> str:
    names = _list_models(api)
    if len(names) == 1:
        return names[0]
    if names:
        listed = ", ".join(clean(name) for name in names)
        raise InvalidInput(f"which model? There are: {listed}. Write for example: {command(f'chat {names[0]}')}")
    if not sys.stdin.isatty():
        raise NotFound(f"there is no model yet; a small one to try: {command(f'models install {DEMO_MODEL}')}")
    click.confirm(
        f"There is no model yet. Install {DEMO_MODEL} (94 MB, runs on any machine)?", default=True, abort=True
    )
    api.call("POST", "api", "models", "install", body={"name": DEMO_MODEL})
    return DEMO_MODEL


def _list_models(api: Api) -> list[str]:
    return [str(model["id"]) for model in api.call("GET", "v1", "models")["data"]]


def visible(text: str) -> str:
    """Nothing a model says steers the reader's terminal."""
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
    _told: str = ""

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
        self._check_there()
        click.echo(f"{clean(self.model)} listens. Ctrl-C stops an answer, Ctrl-D or /exit ends.", err=True)
        _prepare_line_editing()
        while True:
            try:
                while self._turn():
                    pass
                return
            except KeyboardInterrupt:
                click.echo("\nCtrl-D or /exit ends the conversation.", err=True)

    def _check_there(self) -> None:
        """Before somebody writes a long question to nobody. Not every server lists its models."""
        names = [self.model]
        with suppress(NotFound):
            names = _list_models(self.api)
        if self.model not in names:
            near = difflib.get_close_matches(self.model, names, n=3)
            hint = (
                f"Did you mean {' or '.join(near)}?" if near else f"`{command('models list')}` lists those you may use."
            )
            raise self._not_there(NotFound(f"there is no model {self.model!r}, or this key may not use it. {hint}"))

    def _not_there(self, refused: NotFound) -> NotFound:
        """With how to get it, where a gallery has it."""
        query = [("term", self.model), ("limit", "50")]
        with suppress(CorralError):
            found = self.api.call("GET", "api", "models", "available", query=query, within_s=LOOK_WITHIN_S)
            if any(model["name"] == self.model and not model["installed"] for model in found["models"]):
                install = command(f"models install {self.model}")
                return NotFound(f"there is no model {self.model!r} here yet, but a gallery has it: {install}")
        return refused

    def _turn(self) -> bool:
        """Whether the conversation goes on. It does after an error, as if that had not been asked."""
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
                    self.api, self.clock, body, on_text=self._say, on_reasoning=self._think, load_wait_s=left_s
                ),
                self.clock,
                within_s=self.wait_s,
                on_loading=self._tell_loading,
            )
        except NotFound as error:
            raise self._not_there(error) from error
        self._end_line(answered)
        self.messages = [*asked, {"role": "assistant", "content": answered.text}]
        return answered

    def _say(self, text: str) -> None:
        if self._thinking:
            self._thinking = False
            self._write(PLAIN + "\n" if sys.stdout.isatty() else "\n")
        self._write(visible(text))

    def _think(self, text: str) -> None:
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
            click.echo(f"({', '.join([*_facts(answered), self._machine(answered)])})", err=True)

    def _machine(self, answered: Answered) -> str:
        """Corral's frontends name it in the answer; where another one does not, an administrator can ask."""
        if answered.node:
            return f"from {clean(answered.node)}"
        try:
            replicas = self.api.call("GET", "api", "replicas")
            names = {node["id"]: node["name"] for node in self.api.call("GET", "api", "nodes")}
        except CorralError:
            return "machine not told"
        serving = {
            names.get(replica["node_id"], replica["node_id"])
            for replica in replicas
            if replica["model_name"] == self.model and replica["corral_state"] == "ready"
        }
        listed = ", ".join(clean(name) for name in sorted(serving))
        return f"from {'one of ' if len(serving) > 1 else ''}{listed}" if serving else "machine not told"

    def _tell_loading(self, loading: Loading) -> None:
        line = loading_line(self.model, loading.what)
        if line != self._told:
            click.echo(line, err=True)
            self._told = line


def _facts(answered: Answered) -> Sequence[str]:
    usage = answered.usage
    facts = []
    if usage:
        facts.append(f"{usage.get('prompt_tokens', 0)} tokens in, {usage.get('completion_tokens', 0)} out")
    if answered.tokens_per_s is not None:
        facts.append(f"{answered.tokens_per_s:.1f} tokens/s")
    if answered.first_after_s is not None:
        facts.append(f"first after {answered.first_after_s:.2f} s")
    return facts


def _prepare_line_editing() -> None:
    """Arrow keys and history at the prompt, where the system has the library for it."""
    try:
        import readline  # noqa: F401
    except ImportError:
        return
