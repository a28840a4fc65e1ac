"""`corral ops`: operations and their progress."""

import re
from datetime import datetime
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.client.operation import Held, NodePart, OperationPart, how_held, read_operation
from corral.cli.commands.watch_operation import exit_code_of, how_to_follow, summary, wait_for
from corral.cli.display.output import clean, print_fields, print_json, print_table, show_time
from corral.cli.display.progress import count_words, describe_status, status_word
from corral.cli.program_name import command
from corral.core.backends.wait_outcome import WaitOutcome
from corral.core.errors import Conflict, NotFound
from corral.core.sizes import format_bytes
from corral.system import SystemClock

JOB_ID = re.compile(r"[0-9a-fA-F-]{32,}")
CHOICE_LIMIT = 10
_OPEN = ("queued", "downloading", "running_on_worker")


@click.group("ops")
def ops_group() -> None:
    """List, follow, cancel and retry operations.

    OPERATION is an id (`jobID` in JSON), its first characters, or the name of a backend with only one operation (`id`
    in JSON, as in LocalAI)."""


def find_operation(api: Api, name: str) -> str:
    """The id of an operation, by its `jobID`, its first characters, or its backend (`id` in JSON) if that is unique."""
    if JOB_ID.fullmatch(name):
        return str(api.call("GET", "api", "operations", name)["jobID"])
    given = name.lower()
    for path in (("api", "operations"), ("api", "operations", "history")):
        rows = api.call("GET", *path)["operations"]
        named = {row["jobID"]: row for row in rows if given in (row["id"].lower(), row["name"].lower())}
        found = named or {row["jobID"]: row for row in rows if row["jobID"].startswith(given)}
        if len(found) > 1:
            _show_choice(list(found.values()))
            raise Conflict(f"{name!r} matches {len(found)} operations; give the id of one of them")
        if found:
            return str(next(iter(found)))
    raise NotFound(f"no operation {name!r}; see `{command('ops list')}` and `{command('ops history')}`")


def _show_choice(rows: list[dict[str, Any]]) -> None:
    """Prints the matching operations, newest first, before the error."""
    newest = sorted(rows, key=_requested_at, reverse=True)
    print_table(
        ("OPERATION", "ACTION", "BACKEND", "REQUESTED (UTC)", "STATE"),
        [
            (row["jobID"], row["verb"], row["name"], show_time(_requested_at(row)), _state(row))
            for row in newest[:CHOICE_LIMIT]
        ],
        err=True,
    )
    if len(newest) > CHOICE_LIMIT:
        click.echo(f"and {len(newest) - CHOICE_LIMIT} more", err=True)


def _requested_at(row: dict[str, Any]) -> str:
    """When an operation was requested; running and finished ones have different fields."""
    return str(row.get("created_at") or row.get("startedAt") or "")


def _state(row: dict[str, Any]) -> str:
    return "retrying" if row.get("retrying") else str(row.get("state") or row.get("outcome") or "")


def _finish(api: Api, answer: Any, outcome: WaitOutcome) -> None:
    """Prints the summary of an operation and exits with the matching code."""
    if api.as_json:
        print_json(answer)
    else:
        click.echo(summary(read_operation(answer), outcome))
    raise click.exceptions.Exit(exit_code_of([outcome]))


@ops_group.command("list")
@client_command
def list_operations(api: Api) -> None:
    """List running and failed operations."""
    answer = api.call("GET", "api", "operations")
    if api.as_json:
        print_json(answer)
        return
    rows = answer["operations"]
    if not rows:
        click.echo(f"No operations in progress. `{command('ops history')}` lists finished ones.")
        return
    held = _read_held(api)
    print_table(
        ("OPERATION", "ACTION", "PROGRESS", "NODES", "NOTE"),
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
        return f"failed, {describe_retry(operation, held)}: {operation.error}"
    if operation.error or not operation.nodes or not row["cancellable"]:
        return operation.error or row.get("message") or ""
    waits_for = awaited(operation, held)
    return f"waiting for {_named(waits_for, held)}" if waits_for else count_words(operation)


def awaited(operation: OperationPart, held: Held) -> list[NodePart]:
    """The nodes that the operation waits for, if there is nothing else left to do; otherwise none."""
    open_nodes = [node for node in operation.nodes if node.status in _OPEN or node.next_attempt_at is not None]
    waits = all(node.node_id in held and node.status != "downloading" for node in open_nodes)
    return open_nodes if waits else []


def _named(nodes: list[NodePart], held: Held) -> str:
    return ", ".join(clean(f"{node.node_name} ({held[node.node_id]})") for node in nodes)


def describe_retry(operation: OperationPart, held: Held) -> str:
    """When failed nodes are retried. Nodes that get no commands now are waited for instead."""
    failing = [node for node in operation.nodes if node.next_attempt_at is not None]
    if failing and all(node.node_id in held for node in failing):
        return f"waiting for {_named(failing, held)}"
    return _next_attempt(operation.next_attempt_at)


def _next_attempt(at: datetime | None) -> str:
    if at is None:
        return "retrying now"
    left_s = int(at.timestamp() - SystemClock().now_ms() / 1000)
    return f"next attempt in {left_s} s" if left_s > 0 else "next attempt due"


@ops_group.command("show")
@client_command
@click.argument("operation")
def show_operation(api: Api, operation: str) -> None:
    """Show an operation and its progress on each node."""
    answer = api.call("GET", "api", "operations", find_operation(api, operation))
    if api.as_json:
        print_json(answer)
        return
    found = read_operation(answer)
    held = _read_held(api) if found.nodes else {}
    fields = [
        ("OPERATION", found.id),
        ("ACTION", f"{found.verb} {found.backend}"),
        ("STATE", f"failed, {describe_retry(found, held)}" if found.retrying else found.state),
        ("REQUESTED BY", f"{answer.get('actor', '')}, {show_time(_requested_at(answer))} UTC"),
    ]
    if found.state == "cancelled" and answer.get("message"):
        fields.append(("REASON", answer["message"]))
    if answer.get("finished_at"):
        fields.append(("FINISHED", f"{show_time(answer['finished_at'])} UTC"))
    print_fields(fields)
    click.echo("")
    if not found.nodes:
        click.echo("No nodes are affected.")
        return
    print_table(
        ("NODE", "STATUS", "PROGRESS", "TRANSFERRED", "NOTE"),
        [
            (
                node.node_name,
                status_word(node.status, found.verb),
                f"{node.percentage:.0f} %",
                _amount(node),
                _node_note(node, held.get(node.node_id)),
            )
            for node in found.nodes
        ],
    )


def _node_note(node: NodePart, held: str | None) -> str:
    when = f"the node is {held}" if held is not None else _next_attempt(node.next_attempt_at)
    tried = f" (attempt {node.attempts} failed, {when})" if node.attempts else ""
    replaced = f"; replicas replaced {node.method}" if node.method else ""
    return describe_status(node, held) + (tried if node.status in ("error", "downloading") else "") + replaced


def _amount(node: NodePart) -> str:
    if node.status == "success":
        return format_bytes(node.bytes_total) if node.bytes_total is not None else "-"
    return node.amount or "-"


@ops_group.command("watch")
@client_command
@click.argument("operation", required=False)
def watch_operation(api: Api, operation: str | None) -> None:
    """Follow an operation until it has finished.

    Without OPERATION: the newest one in progress."""
    if operation is None:
        running = [row for row in api.call("GET", "api", "operations")["operations"] if row["state"] == "running"]
        if not running:
            raise NotFound(f"no operation is in progress; `{command('ops history')}` lists finished ones")
        operation = max(running, key=lambda row: row["created_at"])["jobID"]
    answer, outcome = wait_for(api, find_operation(api, operation), until=lambda found, _: found.state != "running")
    _finish(api, answer, outcome)


@ops_group.command("cancel")
@client_command
@click.argument("operation")
def cancel_operation(api: Api, operation: str) -> None:
    """Cancel an operation on all nodes.

    Completed nodes go back to what was desired before; only a first install stays, and what a completed rollout has
    changed."""
    _change_operation(api, operation, "cancel")


@ops_group.command("retry")
@client_command
@click.argument("operation")
@click.option("--node", default=None, help="Only this node (name or id).")
@click.option(
    "--wait/--no-wait", "wait", default=True, show_default=True, help="Wait for completion and show progress."
)
def retry_operation(api: Api, operation: str, node: str | None, wait: bool) -> None:
    """Retry failed nodes now. Their number of attempts restarts at zero."""
    operation_id = find_operation(api, operation)
    body = {"node_id": api.find_node(node)["id"]} if node is not None else {}
    answer = api.call("POST", "api", "operations", operation_id, "retry", body=body)
    if wait:
        _finish(api, *wait_for(api, operation_id))
    elif api.as_json:
        print_json(answer)
    else:
        click.echo(f"{operation_id}: retrying. {how_to_follow(operation_id)}")


@ops_group.command("dismiss")
@client_command
@click.argument("operation")
def dismiss_operation(api: Api, operation: str) -> None:
    """Remove a failed operation from the list.

    It stays in the history. An operation that is still being retried must be cancelled instead."""
    _change_operation(api, operation, "dismiss")


def _change_operation(api: Api, operation: str, verb: str) -> None:
    operation_id = find_operation(api, operation)
    answer = api.call("POST", "api", "operations", operation_id, verb)
    if api.as_json:
        print_json(answer)
    else:
        click.echo(f"{operation_id}: {clean(answer['message'])}")


@ops_group.command("history")
@client_command
def show_history(api: Api) -> None:
    """List finished operations, newest first."""
    answer = api.call("GET", "api", "operations", "history")
    if api.as_json:
        print_json(answer)
        return
    if not answer["operations"]:
        click.echo("No finished operations.")
        return
    print_table(
        ("FINISHED (UTC)", "OPERATION", "ACTION", "NODES", "OUTCOME", "REQUESTED BY", "CAUSE", "NOTE"),
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
    """Clear the history. The audit log is not changed."""
    answer = api.call("DELETE", "api", "operations", "history")
    if api.as_json:
        print_json(answer)
    else:
        click.echo("The history was cleared.")
