"""Why a node accepted a new version of a backend: its replicas serve, or a smoke test has started it."""

from dataclasses import dataclass
from enum import StrEnum


class StartEvidence(StrEnum):
    REPLICAS = "replicas"
    """Processes of it run on the node."""
    SMOKE_TEST = "smoke_test"
    """Its worker has started it once."""
    BEFORE = "before"
    """The node went back to it."""
    NONE = "none"
    """It could not be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProof:
    """Equal for equal nodes, so that their results are written together."""

    evidence: StartEvidence
    detail: str = ""
    """How it was started, or why it was not."""

    @property
    def is_tried(self) -> bool:
        return self.evidence is not StartEvidence.NONE
