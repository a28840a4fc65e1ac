"""Waits for an operation: with the event stream, or by polling where there is none."""

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
from corral.core.backends.wait_outcome import WaitOutcome
from corral.core.errors import CorralError, Unavailable
from corral.system import Clock, SystemClock
from corral.system.clock import pause
from corral.system.http_client import EventStream, Unreachable
from corral.system.interrupts import EXIT_INTERRUPTED

POLL_EVERY_S = 5.0
"""How often the operation is read while the stream is open, in case an event is missing."""
POLL_WITHOUT_STREAM_S = 1.0
STREAM_RETRY_S = 5.0
CONNECT_S = 10.0
SILENCE_S = 40.0
"""The frontend pings every 15 s: after two missed pings the stream is dead, whatever the socket says."""
GIVE_UP_S = 120.0
"""How long the frontend may be unreachable before the wait ends."""

EXIT_FAILED, EXIT_UNFINISHED = 1, 4


class Follower:
    """The latest known state of one operation and of the nodes."""

    def __init__(self, api: Api, operation_id: str, display: Display, clock: Clock) -> None:
        self._api, self._id, self._display, self._clock = api, operation_id, display, clock
        self._held: dict[str, str] = {}
        self._stream: EventStream | None = None
        self._opened = ExitStack()
        self._stream_due_s = 0.0
        self._polled_s = 0.0
        self._reached_s = clock.monotonic_s()
        self.answer: Any = None

    def __enter__(self) -> "Follower":
        self._poll()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def operation(self) -> OperationPart:
        return read_operation(self.answer)

    @property
    def outcome(self) -> WaitOutcome:
        return self.operation.judge_wait(self._held)

    def step(self) -> None:
        """Waits a short time for a change and applies it."""
        self._open_stream()
        if self._stream is None:
            pause(POLL_WITHOUT_STREAM_S)
        else:
            try:
                event = self._stream.get(within_s=POLL_WITHOUT_STREAM_S)
                data = event.decode() if event is not None else None
            except (Unreachable, ValueError):
                self._drop_stream()
                return
            if event is not None:
                self._apply(event.name, data)
        if self._stream is None or self._clock.monotonic_s() - self._polled_s >= POLL_EVERY_S:
            self._try_poll()

    def show(self) -> None:
        self._display.show(self.operation, self._held)

    def _open_stream(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._stream is not None or now_s < self._stream_due_s:
            return
        self._stream_due_s = now_s + STREAM_RETRY_S
        try:
            self._stream = self._opened.enter_context(self._connect())
            self._stream.check_status()
        except CorralError:  # polling works without it, and reports what is wrong
            self._drop_stream()
            return
        self._try_poll()  # what happened before the stream began

    def _connect(self) -> EventStream:
        url = f"{self._api.url}/api/events?kinds=operations,nodes"
        return EventStream(url, bearer=self._api.key, answer_within_s=CONNECT_S, silence_s=SILENCE_S)

    def _drop_stream(self) -> None:
        self._stream = None
        self._opened.close()

    def _apply(self, kind: str, data: Any) -> None:
        self._reached_s = self._clock.monotonic_s()
        if kind == "nodes":
            self._note_nodes(data["changed"])
        elif kind == "operations":
            for operation in data["changed"]:
                # An event may be older than the last poll.
                if operation["jobID"] == self._id and not read_operation(operation).is_before(self.operation):
                    self.answer = operation

    def _note_nodes(self, nodes: list[dict[str, Any]]) -> None:
        for node in nodes:
            reason = how_held(node)
            if reason is None:
                self._held.pop(node["id"], None)
            else:
                self._held[node["id"]] = reason

    def _poll(self) -> None:
        self.answer = self._api.call("GET", "api", "operations", self._id)
        self._note_nodes(self._api.call("GET", "api", "nodes"))
        self._polled_s = self._reached_s = self._clock.monotonic_s()

    def _try_poll(self) -> None:
        """Polls, and tolerates a frontend that restarts: the operation continues without it."""
        try:
            self._poll()
        except Unavailable as error:
            if self._clock.monotonic_s() - self._reached_s > GIVE_UP_S:
                raise Unavailable(f"{error}\nThe operation continues. {how_to_follow(self._id)}") from error


def how_to_follow(operation_id: str) -> str:
    watch, cancel = command(f"ops watch {operation_id}"), command(f"ops cancel {operation_id}")
    return f"Follow it: {watch}   Cancel it: {cancel}"


def exit_code_of(outcomes: Iterable[WaitOutcome]) -> int:
    """A failure takes precedence over an unfinished operation."""
    met = set(outcomes)
    if met & {WaitOutcome.FAILED, WaitOutcome.CANCELLED}:
        return EXIT_FAILED
    return EXIT_UNFINISHED if met & {WaitOutcome.UNFINISHED, WaitOutcome.RUNNING} else 0


def summary(operation: OperationPart, outcome: WaitOutcome) -> str:
    result = "in progress" if outcome is WaitOutcome.RUNNING else outcome.value
    head = f"{operation.verb} {clean(operation.backend)}: {result} ({_count(operation)})"
    if operation.verb == "follow" and outcome is WaitOutcome.DONE:
        upgrade = command(f"backends upgrade {clean(operation.backend)}")
        return f"{clean(operation.backend)} follows the galleries. `{upgrade}` installs the newest version."
    if not operation.nodes and operation.verb == "pin" and outcome is WaitOutcome.DONE:
        return f"{clean(operation.backend)} is pinned. All nodes that have it are at this version."
    if not operation.nodes and operation.verb == "install" and outcome is WaitOutcome.DONE:
        return (
            f"{head}\nNo node matches. Matching nodes that join later will install it;"
            f" `{command('backends policies')}` lists such policies, `--end` removes one."
        )
    match outcome:
        case WaitOutcome.FAILED if operation.state == "running":
            return f"{head}\nFailed nodes are retried automatically. {_how_to_see(operation.id)}"
        case WaitOutcome.FAILED:
            return f"{head}\n{_how_to_see(operation.id)}"
        case WaitOutcome.UNFINISHED | WaitOutcome.RUNNING:
            return f"{head}\nRemaining nodes will be retried automatically. {how_to_follow(operation.id)}"
        case _:
            return head


def _count(operation: OperationPart) -> str:
    counts = Counter(node.status for node in operation.nodes)
    if set(counts) == {"success"}:
        return "1 node" if counts["success"] == 1 else f"{counts['success']} nodes"
    return count_words(operation) or "no nodes"


def _how_to_see(operation_id: str) -> str:
    show, retry = command(f"ops show {operation_id}"), command(f"ops retry {operation_id}")
    return f"Show details: {show}   Retry now: {retry}"


@contextmanager
def _leaving_it_running(operation_id: str, *, as_json: bool) -> Iterator[Display]:
    """Handles Ctrl-C, also while the display opens: the operation continues without us."""
    display: Display = Silence()
    try:
        display = open_display(as_json=as_json)
        yield display
    except KeyboardInterrupt:
        display.close()
        click.echo(f"\nThe operation continues. {how_to_follow(operation_id)}", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    finally:
        display.close()


def wait_for(
    api: Api,
    operation_id: str,
    *,
    timeout_s: float | None = None,
    until: Callable[[OperationPart, WaitOutcome], bool] = lambda _, outcome: outcome is not WaitOutcome.RUNNING,
    clock: Clock | None = None,
) -> tuple[Any, WaitOutcome]:
    """Shows the progress until there is nothing more to wait for. Returns the API's object and the outcome."""
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
                display.note(f"Still running after {timeout_s:g} s. {how_to_follow(operation_id)}")
                return follower.answer, follower.outcome
            follower.step()
