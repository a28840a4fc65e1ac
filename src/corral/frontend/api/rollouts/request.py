"""How a request chooses the strategy of its rollout."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from corral.core.backends.rollouts import MAX_SOAK_S, MAX_WAVES, PerNode, RolloutRequest, Strategy, check_sizes


class RolloutBody(BaseModel):
    """What is not given is decided by the policy, then by the settings."""

    model_config = ConfigDict(extra="forbid")

    strategy: Strategy | None = None
    """`all` nodes at once, in `waves`, or `canary`, which stops after the first wave until it is promoted."""
    waves: Annotated[list[Annotated[str, Field(max_length=12)]], Field(max_length=MAX_WAVES)] = []
    """Cumulative sizes of the waves: numbers of nodes or shares, as `3` or `25%`. The last wave has the rest."""
    soak_s: Annotated[float, Field(ge=0, le=MAX_SOAK_S)] | None = None
    """How long each wave is watched before the next one begins."""
    per_node: PerNode | None = None
    """`rolling` starts the new version beside the old one, `stop-first` after it; `auto` decides by free memory."""
    unjudged_passes: bool | None = None
    """Whether a gate that cannot be judged counts as passed."""


def read_rollout(body: RolloutBody | None) -> RolloutRequest | None:
    if body is None:
        return None
    return RolloutRequest(
        strategy=body.strategy,
        sizes=check_sizes(body.waves),
        soak_s=body.soak_s,
        per_node=body.per_node,
        unjudged_passes=body.unjudged_passes,
    )
