"""Which nodes a request is for, from its body or its query."""

from typing import Annotated

from fastapi import Header, Query
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from corral.core.errors import InvalidInput
from corral.core.nodes.targets import Target, find_node
from corral.store.nodes.nodes import NodeStore

NODES_MAX = 10_000

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]
"""A repeated key returns the operation that the first request created."""
NodeQuery = Annotated[list[str], Query(default_factory=list, max_length=NODES_MAX)]
"""Ids or names of nodes; repeatable."""
SelectorQuery = Annotated[list[str], Query(default_factory=list, max_length=100)]
"""Labels `key=value` that a node must have; repeatable."""


class Targeted(BaseModel):
    # A mistyped `nodes` must not mean all of them.
    model_config = ConfigDict(extra="forbid")

    nodes: list[StrictStr] = Field(default=[], max_length=NODES_MAX)
    """Ids or names of nodes. Without `nodes` and `selector` the request is for every node."""
    selector: dict[StrictStr, StrictStr] = {}
    """Labels that a node must have."""


def targeted_by(nodes: list[str], selectors: list[str]) -> Targeted:
    pairs = [selector.partition("=") for selector in selectors]
    wrong = next(
        (selector for selector, (key, equals, _) in zip(selectors, pairs, strict=True) if not (key and equals)), None
    )
    if wrong is not None:
        raise InvalidInput(f"selector: {wrong!r} is not a label selector; write key=value, for example room=b2")
    return Targeted(nodes=nodes, selector={key: value for key, _, value in pairs})


async def read_target(requested: Targeted | None, nodes: NodeStore) -> Target:
    if requested is None:
        return Target()
    if requested.nodes and requested.selector:
        raise InvalidInput("`nodes` and `selector` exclude each other; send only one of them")
    if not requested.nodes:
        return Target(selector=requested.selector)
    known = await nodes.read_all()
    return Target(nodes=tuple(dict.fromkeys(find_node(known, name).id for name in requested.nodes)))
