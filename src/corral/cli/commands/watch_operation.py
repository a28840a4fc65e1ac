"""Waits for an operation by the event stream, and by asking where the stream is not to be had."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from corral.cli.client.api import Api
from corral.cli.client.operation import OperationPart, how_held, read_operation
from corral.cli.display.output import clean
from corral.cli.display.progress import Display, Silence, count_words, open_display
from corral.cli.program_name import command
from corral.core.backends.wait_outcome import Outcome
from corral.core.errors import CorralError, Unavailable
from corral.system import Clock, SystemClock
from corral.system.clock import pause
from corral.system.http_client import EventStream, Unreachable
from corral.system.interrupts import EXIT_INTERRUPTED

ASK_EVERY_S = 5.0
"""A stream that tells nothing is checked this often against the store's word."""
ASK_WITHOUT_STREAM_S = 1.0
STREAM_AGAIN_S = 5.0
CONNECT_S = 10.0
SILENCE_S = 40.0
"""The frontend pings every 15 s: after two missed pings the stream is dead, whatever the socket says."""
GIVE_UP_S = 120.0
"""How long a frontend may be gone before waiting for it makes no sense."""

EXIT_FAILED, EXIT_UNFINISHED = 1, 4


class Follower:
    """What is known of one operation and of the nodes, from whoever tells."""

    def __init__(self, api: Api, operation_id: str, display: Display, clock: Clock) -> None:
        self._api, self._id, self._display, self._clock = api, operation_id, display, clock
        self._held: dict[str, str] = {}
        self._stream: EventStream | None = None
        self._opened = ExitStack()
        self._stream_due_s = 0.0
        self._asked_s = 0.0
        self._reached_s = clock.monotonic_s()
        self.answer: Any = None

    def __enter__(self) -> "Follower":
        self._ask()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def operation(self) -> OperationPart:
        return read_operation(self.answer)

    @property
    def outcome(self) -> Outcome:
        return self.operation.judge(self._held)

    def step(self) -> None:
        """Waits a little for news, and takes it in."""
        self._open_stream()
        if self._stream is None:
            pause(ASK_WITHOUT_STREAM_S)
        else:
            try:
                event = self._stream.get(within_s=ASK_WITHOUT_STREAM_S)
                data = event.decode() if event is not None else None
            except (Unreachable, ValueError):
                self._drop_stream()
                return
            if event is not None:
                self._take(event.name, data)
        if self._stream is None or self._clock.monotonic_s() - self._asked_s >= ASK_EVERY_S:
            self._ask_patiently()

    def show(self) -> None:
        self._display.show(self.operation, self._held)

    def _open_stream(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._stream is not None or now_s < self._stream_due_s:
            return
        self._stream_due_s = now_s + STREAM_AGAIN_S
        try:
            self._stream = self._opened.enter_context(self._connect())
            self._stream.check_status()
        except CorralError:  # polling works without it, and reports what is wrong
            self._drop_stream()
            return
        self._ask_patiently()  # what happened before the stream began

    def _connect(self) -> EventStream:
        url = f"{self._api.url}/api/events?kinds=operations,nodes"
        return EventStream(url, bearer=self._api.key, answer_within_s=CONNECT_S, silence_s=SILENCE_S)

    def _drop_stream(self) -> None:
        self._stream = None
        self._opened.close()

    def _take(self, kind: str, data: Any) -> None:
        self._reached_s = self._clock.monotonic_s()
        if kind == "nodes":
            self._note_nodes(data["changed"])
        elif kind == "operations":
            for operation in data["changed"]:
                # What the stream tells may have been read before what we were answered since.
                if operation["jobID"] == self._id and not read_operation(operation).is_before(self.operation):
                    self.answer = operation

    def _note_nodes(self, nodes: list[dict[str, Any]]) -> None:
        for node in nodes:
            how = how_held(node)
            if how is None:
                self._held.pop(node["id"], None)
            else:
                self._held[node["id"]] = how

    def _ask(self) -> None:
        self.answer = self._api.call("GET", "api", "operations", self._id)
        self._note_nodes(self._api.call("GET", "api", "nodes"))
        self._asked_s = self._reached_s = self._clock.monotonic_s()

    def _ask_patiently(self) -> None:
        """A frontend may restart under us: the operation goes on without it, and so do we."""
        try:
            self._ask()
        except Unavailable as error:
            if self._clock.monotonic_s() - self._reached_s > GIVE_UP_S:
                raise Unavailable(f"{error}\nThe operation is not lost with it. {how_to_follow(self._id)}") from error


def how_to_follow(operation_id: str) -> str:
    watch, cancel = command(f"ops watch {operation_id}"), command(f"ops cancel {operation_id}")
    return f"Follow it: {watch}   Stop it: {cancel}"


def exit_code_of(outcomes: Iterable[Outcome]) -> int:
    """One that failed goes before one that is not finished."""
    met = set(outcomes)
    if met & {Outcome.FAILED, Outcome.CANCELLED}:
        return EXIT_FAILED
    return EXIT_UNFINISHED if met & {Outcome.UNFINISHED, Outcome.GOING_ON} else 0


def summary(operation: OperationPart, outcome: Outcome) -> str:
    head = f"{operation.verb} {clean(operation.backend)}: {outcome.value} ({_count(operation)})"
    if not operation.nodes and operation.verb == "install" and outcome is Outcome.DONE:
        return (
            f"{head}\nNo machine here fits what was asked for. One that comes later, or gets the label, installs it by"
            f" itself; `{command('backends policies')}` lists such wishes, and --end there ends one."
        )
    match outcome:
        case Outcome.FAILED if operation.state == "running":
            return f"{head}\nWhat failed is tried again by itself. {_how_to_see(operation.id)}"
        case Outcome.FAILED:
            return f"{head}\n{_how_to_see(operation.id)}"
        case Outcome.UNFINISHED | Outcome.GOING_ON:
            return f"{head}\nThe rest follows by itself. {how_to_follow(operation.id)}"
        case _:
            return head


def _count(operation: OperationPart) -> str:
    counts = Counter(node.status for node in operation.nodes)
    if set(counts) == {"success"}:
        return "1 machine" if counts["success"] == 1 else f"{counts['success']} machines"
    return count_words(operation) or "no machine"


def _how_to_see(operation_id: str) -> str:
    show, retry = command(f"ops show {operation_id}"), command(f"ops retry {operation_id}")
    return f"See why: {show}   Try again now: {retry}"


@contextmanager
def _leaving_it_running(operation_id: str, *, as_json: bool) -> Iterator[Display]:
    """From the first moment on: opening a display takes a while, and a person may have seen enough by then."""
    display: Display = Silence()
    try:
        display = open_display(as_json=as_json)
        yield display
    except KeyboardInterrupt:
        display.close()
        click.echo(f"\nThe operation goes on. {how_to_follow(operation_id)}", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    finally:
        display.close()


def wait_for(
    api: Api,
    operation_id: str,
    *,
    timeout_s: float | None = None,
    until: Callable[[OperationPart, Outcome], bool] = lambda _, outcome: outcome is not Outcome.GOING_ON,
    clock: Clock | None = None,
) -> tuple[Any, Outcome]:
    """Shows how far it is until it is over for somebody who waits. Answers the API's object and what came of it."""
    clock = clock or SystemClock()
    began_s = clock.monotonic_s()
    with (
        _leaving_it_running(operation_id, as_json=api.as_json) as display,
        Follower(api, operation_id, display, clock) as follower,
    ):
        while True:
            follower.show()
            if until(follower.operation, follower.outcome):
                return follower.answer, follower.outcome
            if timeout_s is not None and clock.monotonic_s() - began_s > timeout_s:
                display.note(f"Not over after {timeout_s:g} s. {how_to_follow(operation_id)}")
                return follower.answer, follower.outcome
            follower.step()
