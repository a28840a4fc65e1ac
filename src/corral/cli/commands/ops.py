"""`corral ops`: what was asked for, and how far it is."""

import re
from datetime import datetime
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.client.operation import Held, NodePart, OperationPart, how_held, read_operation
from corral.cli.commands.watch_operation import exit_code_of, how_to_follow, summary, wait_for
from corral.cli.display.output import clean, print_json, print_table, show_time
from corral.cli.display.progress import count_words, say_status, status_word
from corral.cli.program_name import command
from corral.core.backends.wait_outcome import Outcome
from corral.core.errors import Conflict, NotFound
from corral.core.sizes import format_bytes
from corral.system import SystemClock

JOB_ID = re.compile(r"[0-9a-fA-F-]{32,}")
CHOICE_MOST = 10
_OPEN = ("queued", "downloading", "running_on_worker")


@click.group("ops")
def ops_group() -> None:
    """See, follow, cancel and retry operations.

    OPERATION is the id in the first column (`jobID` in JSON), the beginning of one, or the name of the backend where
    only one operation is about it (`id` in JSON, as LocalAI has it)."""


def find_operation(api: Api, wanted: str) -> str:
    """By its `jobID`, the beginning of one, or what it is about (`id` in JSON) where that names one operation."""
    if JOB_ID.fullmatch(wanted):
        return str(api.call("GET", "api", "operations", wanted)["jobID"])
    given = wanted.lower()
    for path in (("api", "operations"), ("api", "operations", "history")):
        rows = api.call("GET", *path)["operations"]
        named = {row["jobID"]: row for row in rows if given in (row["id"].lower(), row["name"].lower())}
        found = named or {row["jobID"]: row for row in rows if row["jobID"].startswith(given)}
        if len(found) > 1:
            _show_choice(list(found.values()))
            raise Conflict(f"{wanted!r} fits {len(found)} operations; give the id of yours, or its beginning")
        if found:
            return str(next(iter(found)))
    raise NotFound(f"there is no operation {wanted!r}; `{command('ops list')}` shows the ones there are")


def _show_choice(rows: list[dict[str, Any]]) -> None:
    """Newest first, beside the error that follows."""
    newest = sorted(rows, key=_asked_at, reverse=True)
    print_table(
        ("OPERATION", "KIND", "BACKEND", "ASKED (UTC)", "STATE"),
        [
            (row["jobID"], row["verb"], row["name"], show_time(_asked_at(row)), _state(row))
            for row in newest[:CHOICE_MOST]
        ],
        err=True,
    )
    if len(newest) > CHOICE_MOST:
        click.echo(f"and {len(newest) - CHOICE_MOST} more", err=True)


def _asked_at(row: dict[str, Any]) -> str:
    """Of an open operation, or of one in the history."""
    return str(row.get("created_at") or row.get("startedAt") or "")


def _state(row: dict[str, Any]) -> str:
    return "retrying" if row.get("retrying") else str(row.get("state") or row.get("outcome") or "")


def _finish(api: Api, answer: Any, outcome: Outcome) -> None:
    """The last word on an operation, and the exit code that says the same."""
    if api.as_json:
        print_json(answer)
    else:
        click.echo(summary(read_operation(answer), outcome))
    raise click.exceptions.Exit(exit_code_of([outcome]))


@ops_group.command("list")
@client_command
def list_operations(api: Api) -> None:
    """What is under way, and what failed and was not dismissed."""
    answer = api.call("GET", "api", "operations")
    if api.as_json:
        print_json(answer)
        return
    rows = answer["operations"]
    if not rows:
        click.echo(f"Nothing is under way. `{command('ops history')}` shows what was.")
        return
    held = _read_held(api)
    print_table(
        ("OPERATION", "WHAT", "PROGRESS", "NODES", "NOTE"),
        [
            (row["jobID"], f"{row['verb']} {row['name']}", f"{row['progress']} %", _counts(row), _note(row, held))
            for row in rows
        ],
    )


def _counts(row: dict[str, Any]) -> str:
    nodes = row.get("nodes") or []
    return f"{sum(node['status'] == 'success' for node in nodes)} of {len(nodes)} done" if nodes else "-"


def _read_held(api: Api) -> Held:
    held = {node["id"]: how_held(node) for node in api.call("GET", "api", "nodes")}
    return {node: how for node, how in held.items() if how is not None}


def _note(row: dict[str, Any], held: Held) -> str:
    operation = read_operation(row)
    if operation.retrying:
        return f"failed, {say_retry(operation, held)}: {operation.error}"
    if operation.error or not operation.nodes or not row["cancellable"]:
        return operation.error or row.get("message") or ""
    waits_for = awaited(operation, held)
    return f"waiting for {_named(waits_for, held)}" if waits_for else count_words(operation)


def awaited(operation: OperationPart, held: Held) -> list[NodePart]:
    """The nodes that all that is left of it waits for; none while something else is left."""
    open_nodes = [node for node in operation.nodes if node.status in _OPEN or node.next_attempt_at is not None]
    waits = all(node.node_id in held and node.status != "downloading" for node in open_nodes)
    return open_nodes if waits else []


def _named(nodes: list[NodePart], held: Held) -> str:
    return ", ".join(clean(f"{node.node_name} ({held[node.node_id]})") for node in nodes)


def say_retry(operation: OperationPart, held: Held) -> str:
    """Machines that get no orders are not tried again, whatever was planned: they are waited for."""
    failing = [node for node in operation.nodes if node.next_attempt_at is not None]
    if failing and all(node.node_id in held for node in failing):
        return f"waiting for {_named(failing, held)}"
    return _next_attempt(operation.next_attempt_at)


def _next_attempt(at: datetime | None) -> str:
    if at is None:
        return "being tried again"
    left_s = int(at.timestamp() - SystemClock().now_ms() / 1000)
    return f"next attempt in {left_s} s" if left_s > 0 else "next attempt is due"


@ops_group.command("show")
@client_command
@click.argument("operation")
def show_operation(api: Api, operation: str) -> None:
    """One operation, machine by machine."""
    answer = api.call("GET", "api", "operations", find_operation(api, operation))
    if api.as_json:
        print_json(answer)
        return
    found = read_operation(answer)
    click.echo(f"operation  {found.id}")
    click.echo(f"what       {found.verb} {clean(found.backend)}")
    held = _read_held(api) if found.nodes else {}
    state = f"failed, {say_retry(found, held)}" if found.retrying else found.state
    click.echo(f"state      {state}")
    if found.state == "cancelled" and answer.get("message"):
        click.echo(f"because    {clean(answer['message'])}")
    click.echo(f"asked by   {clean(str(answer.get('actor', '')))}, {show_time(_asked_at(answer))} UTC")
    click.echo(f"ended      {show_time(answer['finished_at'])} UTC\n" if answer.get("finished_at") else "")
    if not found.nodes:
        click.echo("No machine is affected.")
        return
    print_table(
        ("NODE", "STATUS", "DONE", "AMOUNT", "NOTE"),
        [
            (
                node.node_name,
                status_word(node.status, found.verb),
                f"{node.percentage:.0f} %",
                _amount(node),
                _say(node, held.get(node.node_id)),
            )
            for node in found.nodes
        ],
    )


def _say(node: NodePart, held: str | None) -> str:
    when = f"it is {held}" if held is not None else _next_attempt(node.next_attempt_at)
    tried = f" (attempt {node.attempts} failed, {when})" if node.attempts else ""
    return say_status(node, held) + (tried if node.status in ("error", "downloading") else "")


def _amount(node: NodePart) -> str:
    if node.status == "success":
        return format_bytes(node.bytes_total) if node.bytes_total is not None else "-"
    return node.amount or "-"


@ops_group.command("watch")
@client_command
@click.argument("operation", required=False)
def watch_operation(api: Api, operation: str | None) -> None:
    """Follow one until it has ended, for as long as that takes.

    Without OPERATION, the newest one under way."""
    if operation is None:
        running = [row for row in api.call("GET", "api", "operations")["operations"] if row["state"] == "running"]
        if not running:
            raise NotFound(f"nothing is under way; `{command('ops history')}` shows what was")
        operation = max(running, key=lambda row: row["created_at"])["jobID"]
    answer, outcome = wait_for(api, find_operation(api, operation), until=lambda found, _: found.state != "running")
    _finish(api, answer, outcome)


@ops_group.command("cancel")
@client_command
@click.argument("operation")
def cancel_operation(api: Api, operation: str) -> None:
    """Call one off, on every machine. What is done stays done."""
    _steer(api, operation, "cancel")


@ops_group.command("retry")
@client_command
@click.argument("operation")
@click.option("--node", default=None, help="Only this machine (name or id).")
@click.option("--wait/--no-wait", "wait", default=True, help="Wait until it is over, and tell how far it is.")
def retry_operation(api: Api, operation: str, node: str | None, wait: bool) -> None:
    """Try again now what failed, with all attempts before it."""
    operation_id = find_operation(api, operation)
    body = {"node_id": api.find_node(node)["id"]} if node is not None else {}
    answer = api.call("POST", "api", "operations", operation_id, "retry", body=body)
    if wait:
        _finish(api, *wait_for(api, operation_id))
    elif api.as_json:
        print_json(answer)
    else:
        click.echo(f"{operation_id}: tried again now. {how_to_follow(operation_id)}")


@ops_group.command("dismiss")
@client_command
@click.argument("operation")
def dismiss_operation(api: Api, operation: str) -> None:
    """Take a failed one off the list; it stays in the history. One that is still tried again has to be cancelled."""
    _steer(api, operation, "dismiss")


def _steer(api: Api, operation: str, verb: str) -> None:
    operation_id = find_operation(api, operation)
    answer = api.call("POST", "api", "operations", operation_id, verb)
    if api.as_json:
        print_json(answer)
    else:
        click.echo(f"{operation_id}: {clean(answer['message'])}")


@ops_group.command("history")
@client_command
def show_history(api: Api) -> None:
    """What was, newest first."""
    answer = api.call("GET", "api", "operations", "history")
    if api.as_json:
        print_json(answer)
        return
    if not answer["operations"]:
        click.echo("Nothing has been asked for yet, or the history was cleared.")
        return
    print_table(
        ("FINISHED (UTC)", "OPERATION", "WHAT", "WHERE", "OUTCOME", "BY", "CAUSE", "NOTE"),
        [
            (
                show_time(row["finishedAt"]),
                row["jobID"],
                f"{row['verb']} {row['name']}",
                _where(row),
                row["outcome"],
                row["actor"],
                row.get("cause") or "",
                row.get("error") or "",
            )
            for row in answer["operations"]
        ],
    )


def _where(row: dict[str, Any]) -> str:
    names = row.get("nodes") or []
    more = row.get("node_count", 0) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


@ops_group.command("clear")
@client_command
def clear_history(api: Api) -> None:
    """Clear the history. The audit log keeps what happened."""
    answer = api.call("DELETE", "api", "operations", "history")
    if api.as_json:
        print_json(answer)
    else:
        click.echo("The history is cleared.")
