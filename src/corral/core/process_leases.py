"""Processes a machine runs only for as long as it hears from the fleet: afterwards they may run elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from corral.core.processes import ProcessKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLeases:
    """The last grant, whole: a process it does not name is ours until somebody says otherwise."""

    asked_s: float = 0.0
    """When the question was sent that the grant answers. Whoever granted counts from later, never from earlier."""
    lengths_s: Mapping[ProcessKey, float] = field(default_factory=dict)

    def lapsed(self, now_s: float) -> tuple[ProcessKey, ...]:
        return tuple(key for key, length_s in self.lengths_s.items() if now_s - self.asked_s >= length_s)

    def without(self, keys: tuple[ProcessKey, ...]) -> "ProcessLeases":
        return replace(self, lengths_s={key: length for key, length in self.lengths_s.items() if key not in keys})


def was_given_away(*, generation: int | None, up_to: int) -> bool:
    """A word about an older process of the same key, still under way, must not end its successor."""
    return generation is None or generation <= up_to
