"""Which nodes a request is for, as its body says."""

from typing import Annotated

from fastapi import Header
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node
from corral.core.nodes.targets import Target, find_node
from corral.store.nodes.nodes import NodeStore

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]
"""The same key again gets the operation of the first time."""


class Targeted(BaseModel):
    # A mistyped `nodes` must not mean all of them.
    model_config = ConfigDict(extra="forbid")

    nodes: list[StrictStr] = Field(default=[], max_length=10_000)
    """Ids or names; none and no selector means every node."""
    selector: dict[StrictStr, StrictStr] = {}
    """Labels a node must have."""


async def read_target(body: Targeted | None, nodes: NodeStore) -> Target:
    if body is None:
        return Target()
    if body.nodes and body.selector:
        raise InvalidInput("name nodes or give a selector, not both")
    if not body.nodes:
        return Target(selector=body.selector)
    known: list[Node] = await nodes.read_all()
    return Target(nodes=tuple(dict.fromkeys(find_node(known, wanted).id for wanted in body.nodes)))
