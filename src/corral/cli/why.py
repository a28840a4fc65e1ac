"""`corral why`: the recorded decision behind what runs where."""

from typing import Any

import click

from corral.cli.client import Api, clean, client_command, print_json
from corral.core.sizes import format_bytes


@click.group("why")
def why_group() -> None:
    """Say why a model is where it is, and why not elsewhere."""


@why_group.command("model")
@client_command
@click.argument("model")
def why_model(api: Api, model: str) -> None:
    """Candidates, scores and what ruled each out, for the latest decisions about MODEL."""
    answer = api.call("GET", "api", "why", "models", model)
    if api.as_json:
        print_json(answer)
        return
    if not answer["replicas"]:
        click.echo(f"{clean(model)} runs nowhere.")
    for replica in answer["replicas"]:
        reason = f" ({clean(replica['reason'])})" if replica.get("reason") else ""
        where = f"{clean(replica['node'])}, slot {replica['replica_index']}"
        click.echo(f"{where}: {replica['corral_state']}{reason}")
    if answer.get("unsatisfiable"):
        click.echo(f"Cannot be given what is wanted: {clean(answer['unsatisfiable'])}")
    for load in answer["loads"]:
        told = load.get("error") or load.get("reason") or ""
        click.echo(f"Load ({clean(load['cause'])}): {load['state']}, attempt {load['attempts'] + 1}. {clean(told)}")
    for decision in answer["decisions"]:
        _print_decision(decision)


def _print_decision(decision: dict[str, Any]) -> None:
    outcome = decision["outcome"]
    placed = outcome.get("placed")
    head = "placed" if placed else f"waiting: {clean(outcome['waiting'])}"
    click.echo(f"\n{decision['at']}  {head}, because {clean(decision['cause'])}")
    if placed and placed.get("evict"):
        click.echo(f"  made room by ending {len(placed['evict'])} idle replicas")
    for candidate in decision["candidates"]:
        mark = "*" if candidate["verdict"] == "chosen" else " "
        click.echo(f" {mark} {clean(candidate['node']):20} {candidate['verdict']:10} {_because(candidate)}")
    hidden = decision["nodes"] - len(decision["candidates"])
    if hidden > 0:
        click.echo(f"   and {hidden} more nodes")


def _because(candidate: dict[str, Any]) -> str:
    if candidate["reason"]:
        return clean(candidate["reason"])
    score = candidate["score"] or {}
    return ", ".join(words for name, value in score.items() if (words := _score_words(name, value)))


def _score_words(name: str, value: int) -> str:
    """What speaks for or against a machine, as people say it; what is as good as can be needs no word."""
    if not value:
        return ""
    match name:
        case "room_unknown":
            return "how much room it has is not known"
        case "in_flight":
            return f"{value} requests in flight there"
        case "same_model":
            return f"{value} of the same model there"
        case "replicas":
            return f"{value} replicas there"
        case "weights_missing":
            return "has not served it before, so its weights are fetched or checked first"
        case "free_mib_negated":
            return f"{format_bytes(-value << 20)} of memory free"
        case _:
            return ""


@why_group.command("node")
@client_command
@click.argument("node")
def why_node(api: Api, node: str) -> None:
    """What NODE was chosen for lately, and what it was passed over for."""
    answer = api.call("GET", "api", "why", "nodes", api.find_node(node)["id"])
    if api.as_json:
        print_json(answer)
        return
    click.echo(f"{clean(answer['node'])} is {answer['status']}. {clean(answer['reason'])}")
    for replica in answer["replicas"]:
        click.echo(f"runs {clean(replica['model_name'])}#{replica['replica_index']}: {replica['corral_state']}")
    for decision in answer["decisions"]:
        click.echo(f"{decision['at']}  {clean(decision['model'])}: {decision['verdict']}. {_because(decision)}")
