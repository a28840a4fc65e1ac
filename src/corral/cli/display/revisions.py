"""Revisions of models in words."""

from typing import Any

import click

from corral.cli.client.api import Api
from corral.cli.display.output import clean, print_json
from corral.cli.program_name import command
from corral.core.causes import without_stop


def name_revision(number: int, revision: str) -> str:
    return f"revision {number} ({revision[:12]})"


def pending_note(model: str, pending: dict[str, Any] | None) -> str:
    """Why the newest revision does not serve yet, and what to do; empty if it serves."""
    if pending is None:
        return ""
    number, serves = pending["number"], f"revision {pending['serving_number']}"
    reason = without_stop(clean(pending["reason"]))
    if not pending["failures"]:
        does = f"waits: {reason}" if reason else "is being loaded and tried"
        return f"revision {number} {does}; {serves} serves until it is ready"
    retry = f"; it is retried only with `{command(f'models load {clean(model)}')}`" if pending["held"] else ""
    edit, discard = command(f"models edit {clean(model)}"), command(f"models rollback {clean(model)}")
    return (
        f"revision {number} failed: {reason}; {serves} keeps serving{retry}. Correct it with `{edit}`, or discard it"
        f" with `{discard}`"
    )


def restore_note(model: str, number: int, restorable: int | None) -> str:
    """For a revision that no replica has ever been ready with, where an earlier one served."""
    if restorable is None:
        return ""
    return (
        f"revision {number} has never been ready; `{command(f'models rollback {clean(model)}')}` restores revision"
        f" {restorable}, which served before"
    )


def if_match(found: dict[str, Any]) -> dict[str, str]:
    return {"If-Match": f'"{found["revision"]}"'}


def report_edit(api: Api, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Prints what a saved configuration changes."""
    if api.as_json:
        print_json(after)
    elif before["number"] == after["number"]:
        click.echo(f"{clean(after['name'])}: unchanged; revision {after['number']} stays")
    elif before["revision"] == after["revision"]:
        click.echo(f"{clean(after['name'])}: saved; nothing changed in effect, so replicas keep running")
    else:
        named = name_revision(after["number"], after["revision"])
        click.echo(f"{clean(after['name'])}: now {named}; {_effect(after)}")
        warn_of_config(after)


def _effect(after: dict[str, Any]) -> str:
    if after["pending"] is None:
        return "takes effect immediately"
    follow = command(f"models show {clean(after['name'])}")
    return f"revision {after['pending']['serving_number']} keeps serving until a replica with it answers (`{follow}`)"


def warn_of_config(model: dict[str, Any]) -> None:
    for warning in model.get("warnings", ()):
        click.echo(clean(warning), err=True)
    if model["unknown_fields"]:
        names = ", ".join(clean(name) for name in model["unknown_fields"])
        click.echo(f"kept fields that Corral does not know: {names}", err=True)
