"""`corral why`: explains placement, routing and backend versions."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.display.output import clean, print_json, show_time
from corral.cli.display.revisions import pending_note, restore_note
from corral.cli.display.slow_builds import slow_line
from corral.cli.program_name import command
from corral.core.backends.build import short_digest
from corral.core.causes import join_reasons
from corral.core.errors import InvalidInput, NotFound
from corral.core.sizes import format_bytes

NAMES_LIMIT = 4
GUESS = "guess"


class WhyGroup(click.Group):
    """Treats a word that is not a subcommand as a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = bool(args) and (args[0] in self.commands or args[0].startswith("-"))
        return super().resolve_command(ctx, args if known else [GUESS, *args])


@click.group("why", cls=WhyGroup)
def why_group() -> None:
    """Explain where a model or request went, and backend versions.

    `corral why NAME` finds out whether NAME is a model, a node, a backend or a request."""


@why_group.command(GUESS, hidden=True)
@client_command
@click.argument("name")
def why_any(api: Api, name: str) -> None:
    """Explains the model, node, backend or request with this name."""
    kind, found = guess_kind(api, name)
    explain = {"model": explain_model, "node": explain_node, "backend": explain_backend, "request": explain_request}
    explain[kind](api, found)


def guess_kind(api: Api, name: str) -> tuple[str, str]:
    """The kind of thing with this name (`model`, `node`, `backend` or `request`), and its exact name or id."""
    models = [name for model in api.call("GET", "api", "models") if name in (model["name"], *model["aliases"])]
    nodes = _nodes(api.call("GET", "api", "nodes"), name)
    found = [("model", one) for one in models[:1]] + [("node", one) for one in nodes]
    if len(found) == 1:
        return found[0]
    if found:
        kinds = " and ".join(dict.fromkeys(kind for kind, _ in found))
        raise InvalidInput(f"{name!r} is the name of a {kinds}; use {_forms(found)}")
    if _exists(lambda: api.call("GET", "api", "why", "backends", name)):
        return "backend", name
    if _exists(lambda: api.call("GET", "api", "why", "requests", name)):
        return "request", name
    raise NotFound(f"no model, node, backend or request {name!r}. {_advice(api, name)}")


def _nodes(nodes: Iterable[dict[str, Any]], name: str) -> list[str]:
    """Ids of the nodes with this name or id, or whose id starts with it."""
    exact = [node["id"] for node in nodes if name in (node["id"], node["name"])]
    return exact or [node["id"] for node in nodes if len(name) >= 4 and node["id"].startswith(name)]


def _exists(read: Callable[[], Any]) -> bool:
    try:
        read()
    except NotFound:
        return False
    return True


def _forms(found: Iterable[tuple[str, str]]) -> str:
    return " or ".join(f"`{command(f'why {kind} {name}')}`" for kind, name in found)


def _advice(api: Api, name: str) -> str:
    names = [item["name"] for kind in ("models", "nodes") for item in api.call("GET", "api", kind)]
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    forms = ", ".join(
        f"`{command(f'why {form}')}`" for form in ("model NAME", "node NAME", "backend NAME", "request ID")
    )
    return f"Use {forms}. ID is the x-request-id header of an answer."


@why_group.command("model")
@client_command
@click.argument("model")
def why_model(api: Api, model: str) -> None:
    """Show the latest placement decisions for MODEL.

    Lists the candidate nodes with their scores, and why each was ruled out."""
    explain_model(api, model)


def explain_model(api: Api, model: str) -> None:
    answer = api.call("GET", "api", "why", "models", model)
    if api.as_json:
        print_json(answer)
        return
    if not answer["replicas"]:
        click.echo(f"{clean(model)} is not running.")
    for replica in answer["replicas"]:
        reason = f" ({clean(replica['reason'])})" if replica.get("reason") else ""
        where = f"{clean(replica['node'])}, slot {replica['replica_index']}"
        click.echo(f"{where}: {replica['corral_state']}{reason}")
    notes = (
        pending_note(answer["model"], answer.get("pending")),
        restore_note(answer["model"], answer["number"], answer.get("restorable")),
    )
    for note in filter(None, notes):
        click.echo(f"{note[0].upper()}{note[1:]}.")
    if answer.get("unsatisfiable"):
        click.echo(f"The desired replicas cannot be placed: {clean(answer['unsatisfiable'])}")
    for line in _load_lines(answer["loads"]):
        click.echo(line)
    _print_slow(answer.get("slow_builds", ()))
    for backoff in answer.get("backoffs", ()):
        click.echo(_backoff_line(backoff))
    for _, alike in groupby(answer["decisions"], key=_model_key):
        latest, *earlier = alike
        _print_decision(latest, f" ({len(earlier) + 1} times since {show_time(earlier[-1]['at'])})" if earlier else "")


def _load_lines(loads: list[dict[str, Any]]) -> Iterator[str]:
    """Similar loads are joined in one line, with the highest number of attempts."""
    attempts: dict[tuple[str, str, str], list[int]] = {}
    for load in loads:
        key = (load["cause"], load["state"], load.get("error") or load.get("reason") or "")
        attempts.setdefault(key, []).append(load["attempts"] + 1)
    for (cause, state, reason), tried in attempts.items():
        what = "Load" if len(tried) == 1 else f"{len(tried)} loads"
        yield f"{what} ({clean(cause)}): {state}, attempt {max(tried)}. {clean(reason)}"


def _model_key(decision: dict[str, Any]) -> tuple[Any, ...]:
    return decision["outcome"], decision["cause"], _grouped(decision["candidates"])


def _backoff_line(backoff: dict[str, Any]) -> str:
    times = "" if backoff["failures"] == 1 else f" {backoff['failures']} times"
    cooling = f"cooling down until {show_time(backoff['until'])}"
    next_try = cooling if backoff["cooling_down"] else "other nodes are preferred"
    error = "\n".join(map(clean, backoff["error"].splitlines()))
    return f"Failed on {clean(backoff['node'])}{times}, {next_try}: {error}"


def _print_decision(decision: dict[str, Any], often: str = "") -> None:
    outcome = decision["outcome"]
    head = "placed" if "placed" in outcome else f"waiting: {clean(outcome['waiting'])}"
    click.echo(f"\n{show_time(decision['at'])}  {head} (cause: {clean(decision['cause'])}){often}")
    if outcome.get("ended"):
        click.echo(f"  evicted: {', '.join(map(clean, outcome['ended']))}")
    for names, verdict, because in _grouped(decision["candidates"]):
        mark = "*" if verdict == "chosen" else " "
        click.echo(f" {mark} {_few(names):20} {verdict.replace('_', ' '):10} {because}")
    hidden = decision["nodes"] - len(decision["candidates"])
    if hidden > 0:
        click.echo(f"   and {hidden} more nodes{_others(decision.get('others', ()))}")


def _others(counted: Sequence[dict[str, Any]]) -> str:
    texts = [
        f"{one['nodes']} {one['verdict'].replace('_', ' ')}{_in_brackets(clean(one['reason']))}" for one in counted
    ]
    return f": {'; '.join(texts)}" if texts else ""


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _grouped(candidates: list[dict[str, Any]]) -> list[tuple[list[str], str, str]]:
    """Nodes with the same verdict and reason are joined, in the order of their first node."""
    names_of: dict[tuple[str, str], list[str]] = {}
    for candidate in candidates:
        names_of.setdefault((candidate["verdict"], _because(candidate)), []).append(clean(candidate["node"]))
    return [(names, verdict, because) for (verdict, because), names in names_of.items()]


def _few(names: list[str]) -> str:
    if len(names) <= NAMES_LIMIT:
        return ", ".join(names)
    return f"{', '.join(names[: NAMES_LIMIT - 1])} and {len(names) - NAMES_LIMIT + 1} more"


def _because(candidate: dict[str, Any]) -> str:
    if candidate["reason"]:
        return clean(candidate["reason"])
    score = candidate["score"] or {}
    return ", ".join(words for name, value in score.items() if (words := _score_words(name, value)))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _score_words(name: str, value: int) -> str:
    """One part of a node's score in words; empty for the best value."""
    if not value:
        return ""
    match name:
        case "failed_here":
            return f"the load failed there {value} times" if value > 1 else "the load failed there once"
        case "capacity_uncertain":
            return "its disk is nearly full" if value > 1 else "its free capacity is unknown"
        case "in_flight":
            return f"{_count(value, 'request')} in flight there"
        case "same_model":
            return f"{_count(value, 'replica')} of the same model there"
        case "replicas":
            return f"{_count(value, 'replica')} there"
        case "weights_missing":
            return "has not served this revision before, so weights are downloaded or checked first"
        case "free_mib_negated":
            return f"{format_bytes(-value << 20)} of memory free"
        case _:
            return ""


@why_group.command("node")
@client_command
@click.argument("node")
def why_node(api: Api, node: str) -> None:
    """Show the latest placement decisions that involved NODE."""
    explain_node(api, api.find_node(node)["id"])


def explain_node(api: Api, node_id: str) -> None:
    answer = api.call("GET", "api", "why", "nodes", node_id)
    if api.as_json:
        print_json(answer)
        return
    reason = f" ({clean(answer['reason'])})" if answer["reason"] else ""
    click.echo(f"{clean(answer['node'])} is {answer['status']}{reason}")
    if not answer["replicas"] and not answer["decisions"]:
        click.echo("It runs no model, and there were no recent placement decisions.")
    for replica in answer["replicas"]:
        click.echo(f"runs {clean(replica['model_name'])}#{replica['replica_index']}: {replica['corral_state']}")
    _print_slow(answer.get("slow_builds", ()))
    for (model, verdict, because), decisions in groupby(answer["decisions"], key=_node_key):
        times = [show_time(decision["at"]) for decision in decisions]  # the latest first
        often = f" ({len(times)} times since {times[-1]})" if len(times) > 1 else ""
        click.echo(f"{times[0]}  {model}: {verdict}.{f' {because}' if because else ''}{often}")


def _print_slow(found: Iterable[dict[str, Any]]) -> None:
    for one in found:
        click.echo(f"Slow: {clean(slow_line(one))}")


def _node_key(decision: dict[str, Any]) -> tuple[str, str, str]:
    return clean(decision["model"]), decision["verdict"].replace("_", " "), _because(decision)


@why_group.command("backend")
@client_command
@click.argument("name")
@click.option("--node", default=None, metavar="NODE", help="Only this node (name or id).")
def why_backend(api: Api, name: str, node: str | None) -> None:
    """Show why nodes have this build and version of a backend.

    Also shows who requested it, whether an upgrade is held back, and why drift is not corrected."""
    explain_backend(api, name, node)


def explain_backend(api: Api, name: str, node: str | None = None) -> None:
    query = {"node": api.find_node(node)["id"]} if node is not None else {}
    answer = api.call("GET", "api", "why", "backends", name, query=query)
    if api.as_json:
        print_json(answer)
        return
    for place in answer["nodes"]:
        click.echo(f"{clean(place['node_name'])}: {_installed(place)}")
        for label, text in _backend_lines(place):
            click.echo(f"  {label}: {clean(text)}")
    _print_slow(answer["slow_builds"])


def _installed(place: dict[str, Any]) -> str:
    if not place["digest"] and not place["version"]:
        return f"{clean(place['build'])} is not installed" if place["build"] else "not installed"
    version = f" {clean(place['version'])}" if place["version"] else ""
    return f"{clean(place['build'])}{version} ({short_digest(place['digest']) or 'digest unknown'})"


def _backend_lines(place: dict[str, Any]) -> Iterator[tuple[str, str]]:
    labels = {
        "desired": "desired",
        "build_reason": "build",
        "version_reason": "version",
        "upgrade": "upgrade",
        "rollout": "rollout",
        "last_change": "last change",
    }
    for field, label in labels.items():
        if place[field]:
            yield label, place[field]
    for drift in place["drift"]:
        yield drift["cause"].replace("_", " "), join_reasons((drift["detail"], drift["not_corrected"]))


@why_group.command("request")
@client_command
@click.argument("request_id", metavar="ID")
def why_request(api: Api, request_id: str) -> None:
    """Show where a request was sent, and why.

    ID is the x-request-id header of its answer."""
    explain_request(api, request_id)


def explain_request(api: Api, request_id: str) -> None:
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
    if route := answer.get("route"):
        skipped = [f"{clean(one['model'])} ({one['reason']})" for one in answer.get("skipped", ())]
        instead = f" as a fallback for {', '.join(skipped)}" if skipped else ""
        yield f"route {clean(route)}: it led to {clean(answer['model'])}{instead}"
    if (load_s := answer.get("load_waited_s")) is not None:
        yield f"no replica was running: waited {load_s:.2f} s for a load"
    if (queued_s := answer.get("queued_s")) is not None:
        place = answer["queue_position"]
        yield f"all replicas were busy: waited {queued_s:.2f} s in the queue, starting at position {place}"
    for failure in answer.get("failed", ()):
        yield f"failed on {clean(failure['node'])}: {clean(failure['error'])}"
    if count := answer.get("continuations"):
        yield f"its answer broke off and was continued at another replica{f', {count} times' if count > 1 else ''}"
    if chosen := answer.get("chosen"):
        yield f"sent to {clean(chosen['node'])}, slot {chosen['slot']}: {_rule(answer)}"
        others = [name for one in answer["candidates"] if (name := _place(one)) != _place(chosen)]
        if others:
            yield f"other candidates: {', '.join(others)}"
    if (first_s := answer.get("first_byte_s")) is not None:
        duration = "in progress for" if answer["state"] == "open" else "finished after"
        yield f"first byte after {first_s:.3f} s, {duration} {answer['took_s']:.3f} s"
    if answer.get("ending"):
        yield clean(answer["ending"])


def _rule(answer: dict[str, Any]) -> str:
    chosen, against = answer["chosen"], answer.get("against")
    match answer["rule"]:
        case "only":
            return "the only available replica"
        case "session":
            return "session affinity: requests of this session are sent there"
        case "prefix":
            return "prefix affinity: requests with the same prefix are sent there"
        case _ if against:
            return (
                f"the less busy of two random replicas, with {_count(chosen['open'], 'open request')}"
                f" ({_place(against)} had {against['open']})"
            )
        case _:
            return f"it had {_count(chosen['open'], 'open request')}"


def _place(replica: dict[str, Any]) -> str:
    return f"{clean(replica['node'])}#{replica['slot']}"
