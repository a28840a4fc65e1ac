"""`corral why NAME` without its kind: what there is of that name."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any

import click

from corral.cli.client.api import Api
from corral.cli.program_name import command
from corral.core.errors import InvalidInput, NotFound

GUESS = "guess"


class WhyGroup(click.Group):
    """A word that is no command is the name of something."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = bool(args) and (args[0] in self.commands or args[0].startswith("-"))
        return super().resolve_command(ctx, args if known else [GUESS, *args])


def guess_kind(api: Api, name: str) -> tuple[str, str]:
    """`model`, `node` or `request`, and what it is called there."""
    models = [name for model in api.call("GET", "api", "models") if name in (model["name"], *model["aliases"])]
    nodes = _nodes(api.call("GET", "api", "nodes"), name)
    found = [("model", one) for one in models[:1]] + [("node", one) for one in nodes]
    if len(found) == 1:
        return found[0]
    if found:
        kinds = " and ".join(dict.fromkeys(kind for kind, _ in found))
        raise InvalidInput(f"{name!r} is the name of a {kinds}; say which is meant: {_forms(found)}")
    if _is(lambda: api.call("GET", "api", "why", "requests", name)):
        return "request", name
    raise NotFound(f"there is no model, node or request {name!r}. {_advice(api, name)}")


def _nodes(nodes: Iterable[dict[str, Any]], name: str) -> list[str]:
    """By name, id, or the beginning of the id."""
    exact = [node["id"] for node in nodes if name in (node["id"], node["name"])]
    return exact or [node["id"] for node in nodes if len(name) >= 4 and node["id"].startswith(name)]


def _is(look: Callable[[], Any]) -> bool:
    try:
        look()
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
    forms = ", ".join(f"`{command(f'why {form}')}`" for form in ("model NAME", "node NAME", "request ID"))
    return f"Write {forms}; the ID is the header x-request-id of an answer."
