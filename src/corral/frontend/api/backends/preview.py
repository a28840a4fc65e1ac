"""What an operation would do: its waves, and how each node would change, as JSON."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from corral.controller.backends.create_operation import OperationPreview
from corral.core.backends.build import short_digest
from corral.core.backends.rollouts import RolloutMember

DryRun = Annotated[bool, Query()]
"""Answers with the plan and changes nothing."""


class PreviewNodeView(BaseModel):
    node_id: str
    node_name: str
    from_build: str
    from_version: str
    """A version number, or the beginning of a digest."""
    to_build: str
    to_version: str
    method: str
    """How its replicas would be replaced: `rolling` or `stop-first`; empty if none run there."""
    reason: str
    """Why in this way."""


class PreviewSkippedView(BaseModel):
    node_name: str
    reason: str


class PreviewView(BaseModel):
    backend: str
    strategy: str
    """Empty if no node changes its version."""
    soak_s: float
    waves: list[list[PreviewNodeView]]
    other_nodes: list[str]
    """Names of nodes that take part without a change of version, for example because they install it anew."""
    skipped: list[PreviewSkippedView]


def preview_view(preview: OperationPreview) -> PreviewView:
    plan = preview.rollout
    waves = plan.waves if plan is not None else ()
    changing = {member.node_id for members in waves for member in members}
    return PreviewView(
        backend=preview.backend,
        strategy=plan.strategy.value if plan is not None else "",
        soak_s=plan.options.soak_s if plan is not None else 0.0,
        waves=[[_node(preview, member) for member in members] for members in waves],
        other_nodes=[intent.node_name for intent in preview.intents if intent.node_id not in changing],
        skipped=[PreviewSkippedView(node_name=one.node_name, reason=one.reason) for one in preview.skipped],
    )


def _node(preview: OperationPreview, member: RolloutMember) -> PreviewNodeView:
    spec = preview.spec_of(member.node_id)
    build = spec.build if spec is not None else None
    return PreviewNodeView(
        node_id=member.node_id,
        node_name=member.node_name,
        from_build=member.build,
        from_version=member.previous_version or short_digest(member.previous_digest),
        to_build=build.name if build is not None else "",
        to_version=(build.version or short_digest(build.digest)) if build is not None else "",
        method=member.method,
        reason=member.method_reason,
    )
