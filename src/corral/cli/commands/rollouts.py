"""`corral rollouts`: changes of versions in waves."""

from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import clean, print_fields, print_json, print_table, show_time
from corral.cli.program_name import command
from corral.system.clock import pause

WATCH_EVERY_S = 1.0
ENDED = ("completed", "failed", "aborted")
SHOWN_NODES = 8


@click.group("rollouts")
def rollouts_group() -> None:
    """Watch and steer changes of versions.

    ROLLOUT is the id of its operation, or the beginning of it."""


@rollouts_group.command("list")
@client_command
def list_rollouts(api: Api) -> None:
    """List running rollouts and the last that ended.

    Edits of models follow below: `corral models history MODEL` shows them in full."""
    answer = api.call("GET", "api", "rollouts")
    if api.as_json:
        print_json(answer)
        return
    if not answer["rollouts"]:
        click.echo(f"There was no rollout of a backend yet. `{command('backends upgrade NAME')}` starts one.")
    else:
        print_table(
            ("ROLLOUT", "BACKEND", "VERSION", "STRATEGY", "WAVE", "STATE", "STARTED (UTC)", "NOTE"),
            [
                (
                    row["id"][:8],
                    row["backend"],
                    _versions(row),
                    row["strategy"],
                    f"{row['wave']}/{row['wave_count']}",
                    row["state"].replace("_", " ") + (", held back" if row["held_back"] else ""),
                    show_time(row["created_at"]),
                    row["summary"],
                )
                for row in answer["rollouts"]
            ],
        )
    if answer["revisions"]:
        click.echo()
        print_table(
            ("MODEL", "REVISION", "STATE", "SAVED (UTC)", "BY", "NOTE"),
            [
                (
                    row["model"],
                    f"{row['previous']} -> {row['number']}",
                    row["state"],
                    show_time(row["created_at"]),
                    row["actor"],
                    row["summary"],
                )
                for row in answer["revisions"]
            ],
        )


@rollouts_group.command("show")
@client_command
@click.argument("rollout")
def show_rollout(api: Api, rollout: str) -> None:
    """Show the waves, nodes, gates and history of a rollout."""
    answer = api.call("GET", "api", "rollouts", rollout)
    if api.as_json:
        print_json(answer)
        return
    print_rollout(answer)


@rollouts_group.command("watch")
@client_command
@click.argument("rollout")
def watch_rollout(api: Api, rollout: str) -> None:
    """Follow a rollout until it ends. The exit code is 1 if it failed or was aborted."""
    shown = 0
    while True:
        answer = api.call("GET", "api", "rollouts", rollout)
        for event in answer["events"][shown:]:
            if not api.as_json:
                click.echo(_event(event))
        shown = len(answer["events"])
        if answer["state"] in ENDED:
            break
        pause(WATCH_EVERY_S)
    if api.as_json:
        print_json(answer)
    else:
        click.echo(clean(f"{answer['backend']}: {answer['summary']}"))
    raise click.exceptions.Exit(0 if answer["state"] == "completed" else 1)


def _add_steering(name: str, help_text: str, done: str) -> None:
    @rollouts_group.command(name, help=help_text)
    @client_command
    @click.argument("rollout")
    def steer(api: Api, rollout: str) -> None:
        answer = api.call("POST", "api", "rollouts", rollout, name)
        if api.as_json:
            print_json(answer)
        else:
            click.echo(f"{done} {clean(answer['backend'])}: {clean(answer['summary'])}.")


_add_steering("resume", "Continue a paused rollout.", "Resumed.")
_add_steering("promote", "Begin the next wave now.", "Promoted.")
_add_steering("abort", "End a rollout; its nodes go back to the previous version.", "Aborted.")
_add_steering("allow", "Offer the version of a failed rollout again.", "Allowed.")


@rollouts_group.command("pause")
@client_command
@click.argument("rollout")
@click.option("--reason", default="", help="Why; shown wherever the rollout is shown.")
def pause_rollout(api: Api, rollout: str, reason: str) -> None:
    """Let no further wave begin. A failed gate still rolls back."""
    answer = api.call("POST", "api", "rollouts", rollout, "pause", body={"reason": reason})
    if api.as_json:
        print_json(answer)
    else:
        click.echo(f"Paused. {clean(answer['backend'])}: {clean(answer['summary'])}.")


def interrupts(preview: dict[str, Any]) -> list[str]:
    """Names of the nodes on which a replica stops before its successor serves."""
    return [node["node_name"] for wave in preview["waves"] for node in wave if node["method"] == "stop-first"]


def print_preview(preview: dict[str, Any], *, everything: bool) -> None:
    """Prints the plan of an operation. Without `everything`, only if it runs in waves or stops a replica before its
    successor serves."""
    waves, stop_first = preview["waves"], interrupts(preview)
    gated = preview["strategy"] not in ("", "all")
    if not (everything or gated or stop_first):
        return
    backend, err = clean(preview["backend"]), not everything
    if not waves:
        click.echo(f"{backend}: no node changes its version.", err=err)
    else:
        changes = sorted({_change(node) for wave in waves for node in wave})
        watched = f", each watched for {preview['soak_s']:g} s" if gated else ""
        count = f"in {len(waves)} {'wave' if len(waves) == 1 else 'waves'} ({preview['strategy']}){watched}"
        click.echo(f"Rollout of {backend} {', '.join(changes)} {count}:", err=err)
    for number, wave in enumerate(waves, 1):
        click.echo(f"  wave {number}: {_names(wave)}", err=err)
        for node in wave if everything or stop_first else ():
            if everything or node["method"] == "stop-first":
                way = node["method"] or "nothing to replace"
                click.echo(f"    {clean(node['node_name'])}: {_change(node)}, {way}: {clean(node['reason'])}", err=err)
    if everything and preview["other_nodes"]:
        click.echo(f"  without a change of version: {', '.join(map(clean, preview['other_nodes']))}", err=err)
    for one in preview["skipped"] if everything else ():
        click.echo(f"  skipped {clean(one['node_name'])}: {clean(one['reason'])}", err=err)
    if stop_first:
        names = ", ".join(map(clean, stop_first))
        click.echo(f"Stop-first on {names}: memory holds one copy, so requests wait for the new one to start.", err=err)


def _change(node: dict[str, Any]) -> str:
    """`1.0 → 1.1`, with the builds if they differ."""
    before, after = node["from_version"] or "?", node["to_version"] or "?"
    if node["from_build"] != node["to_build"] and node["to_build"]:
        before, after = f"{node['from_build']} {before}", f"{node['to_build']} {after}"
    return clean(f"{before} → {after}")


def print_rollout(answer: dict[str, Any]) -> None:
    print_fields(
        [
            ("ROLLOUT", answer["id"]),
            ("BACKEND", answer["backend"]),
            ("VERSION", _versions(answer)),
            ("STATE", answer["summary"]),
            ("STRATEGY", f"{answer['strategy']}, {answer['per_node']} on each node"),
            ("REQUESTED BY", answer["actor"]),
            ("STARTED", show_time(answer["created_at"])),
            ("FINISHED", show_time(answer["ended_at"]) if answer["ended_at"] else "-"),
        ]
    )
    if answer["held_back_note"]:
        click.echo(clean(answer["held_back_note"]))
    for wave in answer["waves"]:
        click.echo()
        click.echo(f"Wave {wave['number']}: {wave['state']}")
        print_table(
            ("NODE", "CLASS", "FROM", "METHOD", "STATE", "NOTE"),
            [
                (
                    node["node_name"],
                    node["node_class"],
                    node["previous_version"],
                    _method(node),
                    node["state"].replace("_", " "),
                    node["error"],
                )
                for node in wave["nodes"]
            ],
        )
        if wave["gates"]:
            print_table(
                ("GATE", "RESULT", "MODEL", "CLASS", "DETAIL"),
                [
                    (gate["gate"], gate["outcome"], gate["model"], gate["node_class"], gate["detail"])
                    for gate in wave["gates"]
                ],
            )
    click.echo()
    for event in answer["events"]:
        click.echo(_event(event))


def _method(node: dict[str, Any]) -> str:
    """How its replicas were replaced; before that is known, how they are expected to be."""
    planned = f"{node['method']} (planned)" if node["method"] else "no replicas"
    return node.get("used_method") or planned


def _event(event: dict[str, Any]) -> str:
    return clean(f"{show_time(event['at'])}  {event['kind'].replace('_', ' ')} ({event['actor']}): {event['text']}")


def _versions(row: dict[str, Any]) -> str:
    return clean(
        ", ".join(sorted({f"{one['previous_version']} -> {one['version']}" for one in row["versions"]})) or "-"
    )


def _names(nodes: list[dict[str, Any]]) -> str:
    names = [clean(node["node_name"]) for node in nodes]
    more = f" and {len(names) - SHOWN_NODES} more" if len(names) > SHOWN_NODES else ""
    return ", ".join(names[:SHOWN_NODES]) + more
