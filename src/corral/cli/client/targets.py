"""Which machines a command is for: all, those with certain labels, or those named."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from corral.cli.client.api import Api
from corral.core.errors import InvalidInput

Command = TypeVar("Command", bound=Callable[..., Any])


def target_options(command: Command) -> Command:
    """Adds --node, --selector and --all, handed on as `target`, the part of a request that names machines."""

    @click.option("--all", "everyone", is_flag=True, help="Every machine, also those that join later. The default.")
    @click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only this machine (name or id); repeatable.")
    @click.option(
        "--selector", "selectors", multiple=True, metavar="KEY=VALUE",
        help="Only machines with this label, also those that join later; repeatable, all must fit.",
    )  # fmt: skip
    @wraps(command)
    def wrapped(
        api: Api, *args: Any, nodes: tuple[str, ...], selectors: tuple[str, ...], everyone: bool, **options: Any
    ) -> Any:
        if everyone and (nodes or selectors):
            raise InvalidInput("--all means every machine; leave it out to name or describe some")
        return command(api, *args, target=read_target(api, nodes, selectors), **options)

    return wrapped  # type: ignore[return-value]


def read_target(api: Api, nodes: tuple[str, ...], selectors: tuple[str, ...]) -> dict[str, Any]:
    if nodes and selectors:
        raise InvalidInput("--node and --selector do not go together; name machines, or describe them")
    if nodes:
        return {"nodes": [api.find_node(node)["id"] for node in nodes]}
    pairs = [selector.partition("=") for selector in selectors]
    wrong = [key for key, equals, _ in pairs if not equals or not key]
    if wrong:
        raise InvalidInput(f"{wrong[0]!r} is not a selector; write for example --selector room=b2")
    return {"selector": {key: value for key, _, value in pairs}} if pairs else {}


def find_labelled(api: Api, selector: dict[str, str]) -> list[str]:
    """Ids of the machines that have these labels now."""
    nodes = api.call("GET", "api", "nodes")
    return [node["id"] for node in nodes if selector.items() <= (node.get("labels") or {}).items()]
