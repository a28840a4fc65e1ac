"""What can be asked of the fleet."""

from dataclasses import dataclass, field

from corral.core.backends.policies import OnDrift
from corral.core.nodes.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedInstall:
    reference: str = ""
    """A gallery's name: `name` or `gallery@name`."""
    uri: str = ""
    """A location outside the galleries; then `name` is what it is called."""
    name: str = ""
    alias: str = ""
    galleries: str = ""
    """JSON text: look the name up there, instead of in the galleries that are set."""
    force: bool = False
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None
    on_drift: OnDrift | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedUpgrade:
    reference: str
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None
    skip_rolled_back: bool = False
    """Leave nodes alone that were rolled back from the very version they would get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedDelete:
    reference: str
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedRollback:
    reference: str
    to: str | None = None
    """A digest; without it the version before."""
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None
