"""Nodes and admissions, made directly in a store."""

from typing import Any

from corral.core.backends.build import BuildRef
from corral.core.backends.intents import BackendSpec, Verb
from corral.core.backends.operations import Admission, NewIntent
from corral.core.nodes.node import Node
from corral.core.nodes.targets import Target
from corral.store.stores import Stores
from corral.system import SystemIds
from harness.machines import Machine, join

IDS = SystemIds()


async def healthy(stores: Stores, name: str, *, localai: bool = False, **claim: Any) -> Node:
    machine = Machine(name=name, secret=None if localai else f"secret-of-{name}", process=f"process-{name}")
    node = await join(stores, machine, **claim)
    return await stores.nodes.read_one(node.id)


def admission(verb: Verb, *nodes: Node, backend: str = "echo", **fields: Any) -> Admission:
    spec = fields.pop("spec", BackendSpec(reference=backend, build=BuildRef(name=backend, digest="sha256:new")))
    return Admission(
        id=fields.pop("id", IDS.uuid()),
        verb=verb,
        backend=backend,
        reference=backend,
        target=Target(nodes=tuple(node.id for node in nodes)),
        actor="test",
        intents=tuple(NewIntent(node_id=node.id, node_name=node.name, backend=backend, spec=spec) for node in nodes),
        **fields,
    )
