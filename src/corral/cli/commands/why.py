"""`corral why`: the recorded decision behind what runs where."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click

from corral.cli.client.api import Api, clean, client_command, print_json, show_time
from corral.cli.commands.why_guess import GUESS, WhyGroup, guess_kind
from corral.core.sizes import format_bytes

NAMES_MOST = 4


@click.group("why", cls=WhyGroup)
def why_group() -> None:
    """Say why a model is where it is, or a request went there.

    And why not elsewhere. `corral why NAME` finds out by itself whether NAME is a model, a node or a request."""


@why_group.command(GUESS, hidden=True)
@client_command
@click.argument("name")
def why_any(api: Api, name: str) -> None:
    """What there is of that name."""
    kind, found = guess_kind(api, name)
    {"model": tell_model, "node": tell_node, "request": tell_request}[kind](api, found)


@why_group.command("model")
@client_command
@click.argument("model")
def why_model(api: Api, model: str) -> None:
    """The latest decisions about MODEL.

    With the candidates, their scores, and what ruled each out."""
    tell_model(api, model)


def tell_model(api: Api, model: str) -> None:
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
    if answer.get("pending"):
        why = clean(answer["pending"]["reason"]) or "it is being loaded"
        click.echo(f"Revision {answer['pending']['revision'][:12]} is pending: {why}")
    if answer.get("unsatisfiable"):
        click.echo(f"Cannot be given what is wanted: {clean(answer['unsatisfiable'])}")
    for line in _load_lines(answer["loads"]):
        click.echo(line)
    for setback in answer.get("backoffs", ()):
        click.echo(_setback_line(setback))
    for _, alike in groupby(answer["decisions"], key=_said_of_model):
        latest, *earlier = alike
        _print_decision(latest, f" ({len(earlier) + 1} times since {show_time(earlier[-1]['at'])})" if earlier else "")


def _load_lines(loads: list[dict[str, Any]]) -> Iterator[str]:
    """Loads of which the same can be said, together, with the attempts of the one that was tried most."""
    attempts: dict[tuple[str, str, str], list[int]] = {}
    for load in loads:
        said = (load["cause"], load["state"], load.get("error") or load.get("reason") or "")
        attempts.setdefault(said, []).append(load["attempts"] + 1)
    for (cause, state, told), tried in attempts.items():
        what = "Load" if len(tried) == 1 else f"{len(tried)} loads"
        yield f"{what} ({clean(cause)}): {state}, attempt {max(tried)}. {clean(told)}"


def _said_of_model(decision: dict[str, Any]) -> tuple[Any, ...]:
    return decision["outcome"], decision["cause"], _grouped(decision["candidates"])


def _setback_line(setback: dict[str, Any]) -> str:
    times = "" if setback["failures"] == 1 else f" {setback['failures']} times"
    later = f"tried again there from {show_time(setback['until'])} on"
    again = later if setback["cooling_down"] else "tried after the others"
    error = "\n".join(map(clean, setback["error"].splitlines()))
    return f"Failed on {clean(setback['node'])}{times}, {again}: {error}"


def _print_decision(decision: dict[str, Any], often: str = "") -> None:
    outcome = decision["outcome"]
    head = "placed" if "placed" in outcome else f"waiting: {clean(outcome['waiting'])}"
    click.echo(f"\n{show_time(decision['at'])}  {head} (cause: {clean(decision['cause'])}){often}")
    if outcome.get("ended"):
        click.echo(f"  others made room: {', '.join(map(clean, outcome['ended']))}")
    for names, verdict, because in _grouped(decision["candidates"]):
        mark = "*" if verdict == "chosen" else " "
        click.echo(f" {mark} {_few(names):20} {verdict.replace('_', ' '):10} {because}")
    hidden = decision["nodes"] - len(decision["candidates"])
    if hidden > 0:
        click.echo(f"   and {hidden} more nodes{_others(decision.get('others', ()))}")


def _others(counted: Sequence[dict[str, Any]]) -> str:
    said = [f"{one['nodes']} {one['verdict'].replace('_', ' ')}{_in_brackets(clean(one['reason']))}" for one in counted]
    return f": {'; '.join(said)}" if said else ""


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _grouped(candidates: list[dict[str, Any]]) -> list[tuple[list[str], str, str]]:
    """Machines of which the same can be said, together; in the order of the first of them."""
    names_of: dict[tuple[str, str], list[str]] = {}
    for candidate in candidates:
        names_of.setdefault((candidate["verdict"], _because(candidate)), []).append(clean(candidate["node"]))
    return [(names, verdict, because) for (verdict, because), names in names_of.items()]


def _few(names: list[str]) -> str:
    if len(names) <= NAMES_MOST:
        return ", ".join(names)
    return f"{', '.join(names[: NAMES_MOST - 1])} and {len(names) - NAMES_MOST + 1} more"


def _because(candidate: dict[str, Any]) -> str:
    if candidate["reason"]:
        return clean(candidate["reason"])
    score = candidate["score"] or {}
    return ", ".join(words for name, value in score.items() if (words := _score_words(name, value)))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _score_words(name: str, value: int) -> str:
    """What speaks for or against a machine, as people say it; what is as good as can be needs no word."""
    if not value:
        return ""
    match name:
        case "failed_here":
            return f"it failed here {value} times" if value > 1 else "it failed here once"
        case "room_doubtful" | "room_unknown":  # decisions of earlier versions have the second name
            return "its disk is nearly full" if value > 1 else "how much room it has is not known"
        case "in_flight":
            return f"{_count(value, 'request')} in flight there"
        case "same_model":
            return f"{value} of the same model there"
        case "replicas":
            return f"{_count(value, 'replica')} there"
        case "weights_missing":
            return "has not served this revision before, so its weights are fetched or checked first"
        case "free_mib_negated":
            return f"{format_bytes(-value << 20)} of memory free"
        case _:
            return ""


@why_group.command("node")
@client_command
@click.argument("node")
def why_node(api: Api, node: str) -> None:
    """What NODE was chosen for lately, and what it was passed over for."""
    tell_node(api, api.find_node(node)["id"])


def tell_node(api: Api, node_id: str) -> None:
    answer = api.call("GET", "api", "why", "nodes", node_id)
    if api.as_json:
        print_json(answer)
        return
    reason = f" ({clean(answer['reason'])})" if answer["reason"] else ""
    click.echo(f"{clean(answer['node'])} is {answer['status']}{reason}")
    if not answer["replicas"] and not answer["decisions"]:
        click.echo("It runs no model, and none was to be placed lately.")
    for replica in answer["replicas"]:
        click.echo(f"runs {clean(replica['model_name'])}#{replica['replica_index']}: {replica['corral_state']}")
    for (model, verdict, because), told in groupby(answer["decisions"], key=_said_of_node):
        times = [show_time(decision["at"]) for decision in told]  # the latest first
        often = f" ({len(times)} times since {times[-1]})" if len(times) > 1 else ""
        click.echo(f"{times[0]}  {model}: {verdict}.{f' {because}' if because else ''}{often}")


def _said_of_node(decision: dict[str, Any]) -> tuple[str, str, str]:
    return clean(decision["model"]), decision["verdict"].replace("_", " "), _because(decision)


@why_group.command("request")
@client_command
@click.argument("request_id", metavar="ID")
def why_request(api: Api, request_id: str) -> None:
    """Where a request went, and why.

    ID is what its answer had in the header x-request-id."""
    tell_request(api, request_id)


def tell_request(api: Api, request_id: str) -> None:
    answer = api.call("GET", "api", "why", "requests", request_id)
    if api.as_json:
        print_json(answer)
        return
    status = f" with {answer['status']}" if answer["status"] else ""
    click.echo(
        f"{show_time(answer['began_at'])}  {clean(answer['model'])}, {clean(answer['path'])}: {answer['state']}{status}"
    )
    for line in _request_lines(answer):
        click.echo(f"  {line}")
    if answer.get("decision"):
        _print_decision(answer["decision"])


def _request_lines(answer: dict[str, Any]) -> Iterator[str]:
    if (load_s := answer.get("load_waited_s")) is not None:
        yield f"no replica ran: it waited {load_s:.2f} s for a load"
    if (queued_s := answer.get("queued_s")) is not None:
        place = answer["queue_position"]
        yield f"every replica was busy: it waited {queued_s:.2f} s in line, at first as number {place}"
    for failure in answer.get("failed", ()):
        yield f"{clean(failure['node'])} failed it: {clean(failure['error'])}"
    if chosen := answer.get("chosen"):
        yield f"sent to {clean(chosen['node'])}, slot {chosen['slot']}: {_rule(answer)}"
        others = [name for one in answer["candidates"] if (name := _place(one)) != _place(chosen)]
        if others:
            yield f"could have gone to {', '.join(others)}"
    if (first_s := answer.get("first_byte_s")) is not None:
        so_far = "under way for" if answer["state"] == "open" else "over after"
        yield f"first byte after {first_s:.3f} s, {so_far} {answer['took_s']:.3f} s"
    if answer.get("ending"):
        yield clean(answer["ending"])


def _rule(answer: dict[str, Any]) -> str:
    chosen, against = answer["chosen"], answer.get("against")
    match answer["rule"]:
        case "only":
            return "the only one that could take it"
        case "session":
            return "requests of its session go there"
        case "prefix":
            return "requests that begin alike go there"
        case _ if against:
            return (
                f"of two at random the less busy one, with {chosen['open']} open requests"
                f" ({_place(against)} had {against['open']})"
            )
        case _:
            return f"it had {chosen['open']} open requests"


def _place(replica: dict[str, Any]) -> str:
    return f"{clean(replica['node'])}#{replica['slot']}"
